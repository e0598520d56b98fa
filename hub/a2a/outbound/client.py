"""The SDK's client towards one remote agent, over our guarded HTTP, with the credential that its card asks for."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
from django.conf import settings

from hub.a2a.http import EXTRA_QUERY, GuardedTransport, limits
from hub.a2a.outbound.cards import usable_interface
from hub.a2a.outbound.config import BINDINGS, RemoteConfig

if TYPE_CHECKING:
    from a2a.client import Client
    from a2a.types import AgentCard

CONNECT_SECONDS = 10.0


class NoCredential(Exception):
    """The card asks for a way of proving who we are that we have no credential for; `str()` is fit to be shown."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a credential goes: `header`, `query` or `cookie`, under a name, behind a prefix."""

    where: str
    name: str
    prefix: str = ""


def open_client(card: AgentCard, config: RemoteConfig) -> tuple[Client, httpx.AsyncClient]:
    """A client for the interface that we use, and the HTTP below it, which the caller closes.

    Raises `CardRefused`, `NoCredential`, `MissingSecret`.
    """
    from a2a.client import ClientConfig, ClientFactory
    from a2a.types import AgentCard

    narrowed = AgentCard()
    narrowed.CopyFrom(card)
    del narrowed.supported_interfaces[:]
    narrowed.supported_interfaces.append(usable_interface(card, config))
    place = credential_place(card)
    secret = config.secret() if place is not None else None
    if place is not None and secret is None:
        raise NoCredential("The agent's card asks for a credential, and its executor_config names none.")
    http = httpx.AsyncClient(
        transport=GuardedTransport(),
        timeout=limits(settings.HUB_A2A_SILENCE_SECONDS, CONNECT_SECONDS),
        headers={"accept-encoding": "identity"},
        auth=CardAuth(place, secret, config) if place is not None and secret is not None else None,
        follow_redirects=False,
        trust_env=False,
    )
    # Streaming or not is the card's to say. Without streams we ask for an immediate answer and look again: a task whose
    # id is known can be cancelled, and taken up again by another attempt.
    wanted = ClientConfig(
        streaming=True,
        polling=not card.capabilities.streaming,
        httpx_client=http,
        supported_protocol_bindings=list(BINDINGS),
    )
    return ClientFactory(wanted).create(narrowed), http


def credential_place(card: AgentCard) -> Place | None:
    """Where the card wants a credential; None when it wants none. Raises `NoCredential` when it is nothing that we can do."""
    requirements = [set(requirement.schemes) for requirement in card.security_requirements]
    if not requirements or set() in requirements:
        return None
    refused = []
    for names in requirements:
        if len(names) != 1:
            refused.append(" and ".join(sorted(names)))
            continue
        (name,) = names
        place = _place(card.security_schemes[name]) if name in card.security_schemes else None
        if place is not None:
            return place
        refused.append(name)
    raise NoCredential(f"The agent's card asks for what we can't give: {'; or '.join(refused)[:200]}.")


def _place(scheme: Any) -> Place | None:
    kind = scheme.WhichOneof("scheme")
    if kind == "http_auth_security_scheme":
        name = scheme.http_auth_security_scheme.scheme
        return (
            Place("header", "Authorization", f"{name.capitalize()} ") if name.lower() in ("bearer", "basic") else None
        )
    if kind in ("oauth2_security_scheme", "open_id_connect_security_scheme"):
        return Place("header", "Authorization", "Bearer ")  # the token is fetched by whoever keeps the secrets
    if kind == "api_key_security_scheme":
        key = scheme.api_key_security_scheme
        where = key.location.lower()
        return Place(where, key.name) if where in ("header", "query", "cookie") and key.name else None
    return None


class CardAuth(httpx.Auth):
    """Adds the credential to what goes to the hosts that may have it, and to nothing else."""

    def __init__(self, place: Place, secret: str, config: RemoteConfig) -> None:
        self._place = place
        self._secret = secret
        self._config = config

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if not self._config.may_be_sent_to(request.url.host):
            raise NoCredential(
                f"The credential may not be sent to {request.url.host[:200]}: credential_hosts does not name it."
            )
        place = self._place
        if place.where == "header":
            request.headers[place.name] = place.prefix + self._secret
        elif place.where == "query":
            # Not into the request's own URL, which httpx writes into its log and its errors.
            request.extensions = {**request.extensions, EXTRA_QUERY: {place.name: self._secret}}
        else:
            held = request.headers.get("cookie")
            request.headers["cookie"] = (
                f"{held}; {place.name}={self._secret}" if held else f"{place.name}={self._secret}"
            )
        yield request
