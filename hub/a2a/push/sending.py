"""One notification over HTTP: where it may go, how it is signed, and what the answer means."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from dataclasses import dataclass

import httpx
from django.conf import settings

from hub.a2a.addresses import AddressRefused
from hub.a2a.http import GuardedTransport, limits
from hub.a2a.push.models import PushConfig, PushNotification
from sessions_app.protocol.jsontext import dumps

CONNECT_SECONDS = 10.0
READ_SECONDS = 20.0
TOTAL_SECONDS = 30.0
RETRY_AFTER_MAX = 3600.0
GONE = 410
TOKEN_SECONDS = 300
CONTENT_TYPES = {"1.0": "application/a2a+json", "0.3": "application/json"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an attempt. `gone`: the receiver wants no more; `after`: seconds that it asked us to wait."""

    ok: bool
    error: str = ""
    gone: bool = False
    after: float = 0.0


def send(config: PushConfig, notification: PushNotification) -> Verdict:
    """Make one attempt, within `TOTAL_SECONDS`. Redirections are not followed: an address that moves is registered anew."""
    try:
        return asyncio.run(asyncio.wait_for(_send(config, notification), TOTAL_SECONDS))
    except TimeoutError:
        return Verdict(False, "no answer in time")
    except AddressRefused as refusal:
        return Verdict(False, str(refusal)[:200])
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Verdict(False, type(error).__name__)


async def _send(config: PushConfig, notification: PushNotification) -> Verdict:
    body = notification.body.encode()
    async with httpx.AsyncClient(
        transport=GuardedTransport(),
        timeout=limits(READ_SECONDS, CONNECT_SECONDS),
        follow_redirects=False,
        trust_env=False,
    ) as client:
        headers = headers_for(config, notification, body, time.time())
        # What it answers besides the status is not read.
        async with client.stream("POST", config.url, content=body, headers=headers) as answer:
            return verdict_of(answer)


def verdict_of(answer: httpx.Response) -> Verdict:
    if answer.is_success:
        return Verdict(True)
    after = answer.headers.get("retry-after", "")
    seconds = min(float(after), RETRY_AFTER_MAX) if after.isascii() and after.isdecimal() else 0.0
    return Verdict(False, f"HTTP {answer.status_code}", gone=answer.status_code == GONE, after=seconds)


def headers_for(config: PushConfig, notification: PushNotification, body: bytes, now: float) -> dict[bytes, bytes]:
    """The headers, as bytes: a client's token may be any text.

    `HMAC-SHA256` and `JWT` sign with the credentials and keep them; every other scheme sends them, as A2A has it.
    """
    headers = {
        b"content-type": CONTENT_TYPES[config.protocol].encode(),
        b"accept-encoding": b"identity",
        b"user-agent": b"session-hub",
        b"x-a2a-notification-id": f"{config.pk}.{notification.number}".encode(),
    }
    if config.token:
        headers[b"x-a2a-notification-token"] = config.token.encode()
    scheme = config.scheme.lower()
    if not scheme or not config.credentials:
        return headers
    if scheme in ("hmac-sha256", "hmac"):
        headers[b"x-a2a-signature"] = signature(config.credentials, body, int(now)).encode()
    elif scheme == "jwt":
        headers[b"authorization"] = b"Bearer " + json_web_token(config, notification, body, int(now)).encode()
    else:
        headers[b"authorization"] = f"{config.scheme} {config.credentials}".encode()
    return headers


def signature(secret: str, body: bytes, moment: int) -> str:
    """`t=<unix seconds>,v1=<hexadecimal HMAC-SHA256 of "<t>.<body>">`: the time is signed, so that a replay shows."""
    digest = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


def json_web_token(config: PushConfig, notification: PushNotification, body: bytes, moment: int) -> str:
    """RFC 7519, HS256. `request_body_sha256` binds it to this body, `jti` is the same at every attempt."""
    claims = {
        "iss": settings.HUB_PUBLIC_URL or "session-hub",
        "aud": config.url,
        "iat": moment,
        "exp": moment + TOKEN_SECONDS,
        "jti": f"{config.pk}.{notification.number}",
        "task_id": config.task_id,
        "request_body_sha256": hashlib.sha256(body).hexdigest(),
    }
    signed = f"{_base64(dumps({'alg': 'HS256', 'typ': 'JWT'}).encode())}.{_base64(dumps(claims).encode())}"
    digest = hmac.new(config.credentials.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{_base64(digest)}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
