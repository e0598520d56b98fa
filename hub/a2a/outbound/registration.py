"""Making an agent of a card's URL: what the executor `a2a` checks and adds when an agent is registered or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hub.a2a.addresses import AddressRefused, check_url
from hub.a2a.outbound.cards import CardRefused, describe, refresh, usable_interface
from hub.a2a.outbound.client import NoCredential, credential_place
from hub.a2a.outbound.config import MissingSecret, read_config
from hub.a2a.outbound.models import RemoteCard
from sessions_app.db import utc_now
from sessions_app.protocol.errors import Invalid


class RemoteSetup:
    """One of `EXECUTOR_SETUPS`."""

    def check(self, config: Mapping[str, Any]) -> None:
        """Raises `Invalid`. Asks nobody; the sweep fetches a card that is not known yet."""
        card_url = read_config(config).card_url
        RemoteCard.objects.get_or_create(url=card_url, defaults={"due_at": utc_now()})

    def complete(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Fetch the card, and see whether it could be spoken to: its address, its interfaces, the credential it wants.

        Returns the directory's `name`, `description` and `skills`. Raises `Invalid`.
        """
        wanted = read_config(config)
        try:
            card = refresh(wanted)
            interface = usable_interface(card, wanted)
            check_url(interface.url)
            if credential_place(card) is not None:
                if wanted.credential is None:
                    raise NoCredential("The card asks for a credential: name one.")
                wanted.secret()
        except AddressRefused as refusal:
            raise Invalid(f"The card's interface: {refusal}", field="executor_config") from None
        except (CardRefused, NoCredential, MissingSecret) as refusal:
            raise Invalid(str(refusal), field="executor_config") from None
        return describe(card)
