"""The `executor_config` of an agent whose executor is `a2a`, and the secrets that it names. Secrets are in the environment.

    {"card_url": "https://agents.example.org/weather",    its base address, or that of the card itself
     "credential": "WEATHER",                             read from the environment variable HUB_A2A_SECRET_WEATHER
     "credential_hosts": ["api.example.org"],             hosts besides the card's that it may be sent to
     "timeout_seconds": 120,                              for one task; the trace's own limit holds anyhow
     "binding": "JSONRPC"}                                or "HTTP+JSON"; by default the card's first that we speak

The name and not the secret is stored, and it can only name variables with that prefix: whoever may configure agents does
not read the rest of the environment by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hub.a2a.addresses import AddressRefused, split_url
from sessions_app.protocol.errors import Invalid

SECRET_PREFIX = "HUB_A2A_SECRET_"
BINDINGS = ("JSONRPC", "HTTP+JSON")
TIMEOUT_SECONDS_MAX = 86_400
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_FIELDS = {"card_url", "credential", "credential_hosts", "timeout_seconds", "binding"}


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    card_url: str
    credential: str | None = None
    credential_hosts: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    binding: str | None = None

    def secret(self) -> str | None:
        """The credential's value; None where none is named. Raises `MissingSecret`."""
        if self.credential is None:
            return None
        value = os.environ.get(SECRET_PREFIX + self.credential, "").strip()
        if not value:
            raise MissingSecret(f"{SECRET_PREFIX}{self.credential} is not set.")
        return value

    def may_be_sent_to(self, host: str) -> bool:
        """Whether the credential may: a card that changes its mind about its address does not get it sent elsewhere."""
        return host.lower() in {(urlsplit(self.card_url).hostname or "").lower(), *self.credential_hosts}


class MissingSecret(Exception):
    """A credential that is named is not in the environment."""


def read_config(value: Mapping[str, Any]) -> RemoteConfig:
    """Raises `Invalid`. Nothing is looked up and nobody is asked."""
    unknown = sorted(set(value) - _FIELDS)
    if unknown:
        raise _invalid(f"executor_config of a2a has no {unknown[0][:64]}; it has {', '.join(sorted(_FIELDS))}.")
    card_url = value.get("card_url")
    if not isinstance(card_url, str):
        raise _invalid("executor_config of a2a needs card_url.")
    try:
        split_url(card_url)
    except AddressRefused as refusal:
        raise _invalid(f"card_url: {refusal}") from None
    credential = value.get("credential")
    if credential is not None and not (isinstance(credential, str) and _NAME.fullmatch(credential)):
        raise _invalid(
            f"credential is the name of a secret, in capitals: what follows {SECRET_PREFIX} in the environment."
        )
    hosts = value.get("credential_hosts", [])
    if not isinstance(hosts, list) or not all(isinstance(host, str) and 0 < len(host) <= 253 for host in hosts):
        raise _invalid("credential_hosts is a list of host names.")
    seconds = value.get("timeout_seconds")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and 1 <= seconds <= TIMEOUT_SECONDS_MAX):
        raise _invalid(f"timeout_seconds is 1 to {TIMEOUT_SECONDS_MAX}, or null.")
    binding = value.get("binding")
    if binding is not None and binding not in BINDINGS:
        raise _invalid(f"binding is {' or '.join(BINDINGS)}.")
    return RemoteConfig(card_url, credential, tuple(host.lower() for host in hosts), seconds, binding)


def _invalid(message: str) -> Invalid:
    return Invalid(message, field="executor_config")
