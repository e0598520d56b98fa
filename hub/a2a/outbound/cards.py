"""Agent cards by their URL: fetched, validated, cached in a row for all processes, refreshed when they are stale."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
from django.conf import settings

from hub.a2a.addresses import AddressRefused
from hub.a2a.http import GuardedTransport, TooLarge, limits
from hub.a2a.outbound.config import BINDINGS, MissingSecret, RemoteConfig
from hub.a2a.outbound.models import RemoteCard
from sessions_app.db import utc_now, write_transaction
from sessions_app.models import Agent

if TYPE_CHECKING:
    from a2a.types import AgentCard, AgentInterface

log = logging.getLogger("hub.a2a")

EXECUTOR = "a2a"
WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")  # since 0.3, before
CARD_BYTES = 512 * 1024
CARD_SECONDS = 15.0
REDIRECTS = 3
FRESH_SECONDS_MAX = 86_400
FRESH_SECONDS_MIN = 60
NOTHING: dict[str, Any] = {"name": "", "description": "", "skills": []}
SWEPT_AGAIN_SECONDS = 300
AGAIN_SECONDS = 60  # after a failure the old card is used for so long before the next try
VERSIONS = re.compile(r"(0\.3|1\.\d+)(\.\d+)*")


class CardRefused(Exception):
    """There is no card that could be used; `str()` is fit to be shown to an operator."""


def card_of(config: RemoteConfig) -> AgentCard:
    """The agent's card: the cached one while it is fresh, or as long as no newer one can be had. Raises `CardRefused`."""
    row = RemoteCard.objects.filter(url=config.card_url).first()
    now = utc_now()
    if row is not None and row.card is not None:
        fresh = row.fresh_until is not None and row.fresh_until > now
        tried = row.failed_at is not None and row.failed_at > now - timedelta(seconds=AGAIN_SECONDS)
        if fresh or tried:
            return parsed(row.card)
    try:
        return refresh(config)
    except CardRefused as refusal:
        if row is not None and row.card is not None:
            log.warning("the card at %s can't be refreshed, the old one is used: %s", config.card_url, refusal)
            return parsed(row.card)
        raise


def refresh(config: RemoteConfig) -> AgentCard:
    """Fetch the card, keep it, and let the directory say what it says; raises `CardRefused`, which is kept, too."""
    row = RemoteCard.objects.filter(url=config.card_url).first()
    old = row.card if row is not None else None
    now = utc_now()
    try:
        answer = _fetch(config, row.etag if row is not None and old is not None else "")
        raw = old if answer is None else answer.raw
        card = parsed(raw)
        usable_interface(card, config)
    except CardRefused as refusal:
        with write_transaction():
            RemoteCard.objects.update_or_create(
                url=config.card_url,
                defaults={
                    "failed_at": now,
                    "failure": str(refusal)[:500],
                    "due_at": now + timedelta(seconds=SWEPT_AGAIN_SECONDS),
                },
            )
        raise
    fresh_until = now + timedelta(seconds=_fresh_seconds(answer))
    columns: dict[str, Any] = {
        "fetched_at": now,
        "fresh_until": fresh_until,
        "due_at": fresh_until,
        "failed_at": None,
        "failure": "",
    }
    if answer is not None:
        columns |= {"card": raw, "etag": answer.etag}
    with write_transaction():
        RemoteCard.objects.update_or_create(url=config.card_url, defaults=columns)
        if old != raw:
            _follow(config.card_url, describe(parsed(old)) if old is not None else NOTHING, describe(card))
    return card


def describe(card: AgentCard) -> dict[str, Any]:
    """What the directory says of an agent that has this card: `name`, `description`, `skills`."""
    from google.protobuf.json_format import MessageToDict

    skills = []
    for skill in list(card.skills)[:100]:
        told = MessageToDict(skill)
        skills.append({key: told[key] for key in ("id", "name", "description", "tags", "examples") if key in told})
    while skills and len(json.dumps(skills).encode()) > 48 * 1024:
        skills.pop()
    name = "".join(character for character in card.name if character.isprintable())
    return {"name": name[:200], "description": card.description.replace("\0", "")[:4000], "skills": skills}


def usable_interface(card: AgentCard, config: RemoteConfig) -> AgentInterface:
    """The interface that will be spoken to: the first of a binding and version that we speak; raises `CardRefused`."""
    wanted = (config.binding,) if config.binding else BINDINGS
    offered = []
    interface: AgentInterface
    for interface in card.supported_interfaces:
        offered.append(f"{interface.protocol_binding} {interface.protocol_version}")
        if interface.protocol_binding in wanted and VERSIONS.fullmatch(interface.protocol_version or "1.0"):
            return interface
    raise CardRefused(
        f"The card offers {', '.join(offered[:10])[:300] or 'nothing'}; we speak {' and '.join(wanted)}, 1.x and 0.3."
    )


def parsed(raw: Any) -> AgentCard:
    """Validate a card of any version; raises `CardRefused`."""
    from a2a.client.card_resolver import parse_agent_card
    from google.protobuf.json_format import ParseError

    try:
        card = parse_agent_card(copy.deepcopy(raw))  # it changes what it is given
    except (ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CardRefused(f"This is no agent card: {str(error)[:200]}") from None
    if not card.name:
        raise CardRefused("This is no agent card: it has no name.")
    required = [extension.uri for extension in card.capabilities.extensions if extension.required]
    if required:
        raise CardRefused(f"The agent requires an extension that we don't speak: {required[0][:200]}")
    return card


def card_urls(url: str) -> list[str]:
    """Where the card may be: the URL itself when it names a file, else the well-known places below it."""
    if url.partition("?")[0].endswith(".json"):
        return [url]
    return [url.rstrip("/") + place for place in WELL_KNOWN]


@dataclass(frozen=True, slots=True)
class _Answer:
    raw: Any
    etag: str
    cache_control: str


def _fetch(config: RemoteConfig, etag: str) -> _Answer | None:
    """The card as it is now; None when it is still the one of `etag`. Blocks for at most `CARD_SECONDS`."""
    try:
        return asyncio.run(asyncio.wait_for(_fetched(config, etag), CARD_SECONDS))
    except (AddressRefused, MissingSecret, TooLarge) as error:
        raise CardRefused(str(error)) from None
    except TimeoutError:
        raise CardRefused("The card can't be fetched in time.") from None
    except httpx.TooManyRedirects:
        raise CardRefused("The card is redirected too often.") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CardRefused(f"The card can't be fetched ({type(error).__name__}).") from None


async def _fetched(config: RemoteConfig, etag: str) -> _Answer | None:
    status = 0
    async with httpx.AsyncClient(
        transport=GuardedTransport(), timeout=limits(CARD_SECONDS), trust_env=False, max_redirects=REDIRECTS
    ) as client:
        for url in card_urls(config.card_url):
            status, headers, content = await _get(client, url, etag, None)
            if status in (401, 403) and (secret := config.secret()):
                status, headers, content = await _get(client, url, etag, secret)
            if status == 304 and etag:
                return None
            if status == 200:
                tag = headers.get("etag", "")
                return _Answer(_read(content), tag if len(tag) <= 500 else "", headers.get("cache-control", ""))
            if status not in (404, 405, 410):
                break
    raise CardRefused(f"The card can't be fetched: HTTP {status}.")


async def _get(client: httpx.AsyncClient, url: str, etag: str, secret: str | None) -> tuple[int, httpx.Headers, bytes]:
    """The transport judges every hop of a redirection; with a secret none is followed."""
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    if etag:
        headers["if-none-match"] = etag
    if secret:
        headers["authorization"] = f"Bearer {secret}"
    content = b""
    async with client.stream("GET", url, headers=headers, follow_redirects=secret is None) as answer:
        async for piece in answer.aiter_bytes():
            content += piece
            if len(content) > CARD_BYTES:
                raise TooLarge(f"A card has at most {CARD_BYTES} bytes.")
        return answer.status_code, answer.headers, content


def _read(content: bytes) -> Any:
    try:
        raw = json.loads(content, parse_constant=_no_constant)
        json.dumps(raw, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise CardRefused("This is no agent card: it is not JSON.") from None
    return raw


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _fresh_seconds(answer: _Answer | None) -> float:
    """As the remote says (`Cache-Control: max-age`), within bounds."""
    seconds = float(settings.HUB_A2A_CARD_SECONDS)
    if answer is not None and (found := re.search(r"max-age=(\d{1,9})", answer.cache_control)):
        seconds = float(found.group(1))
    return max(FRESH_SECONDS_MIN, min(seconds, FRESH_SECONDS_MAX))


def _follow(card_url: str, was: dict[str, Any], now: dict[str, Any]) -> None:
    """The directory's entries follow the card; what an operator has written instead stays."""
    for agent in Agent.objects.filter(executor=EXECUTOR):
        if (agent.executor_config or {}).get("card_url") == card_url:
            changed = {name: now[name] for name in now if getattr(agent, name) == was[name] != now[name]}
            if changed:
                Agent.objects.filter(pk=agent.pk).update(**changed)
