"""Who opens a socket and how it wants to be served: everything that is read from the handshake."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from sessions_app.protocol.errors import Invalid

SUBPROTOCOL = "hub.v1"
TEXTS = "hub.texts"
"""An ASGI extension of our own server: an event of this type holds `texts`, several text frames for one write."""
_BEARER = "bearer."
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Handshake:
    """`authorization` is the header that counts; `after` None means: from the cursor; `problem` is told after the welcome;
    `together`: the server writes several frames at once."""

    authorization: str | None
    subprotocol: str | None
    manual: bool
    batch: bool
    runs_traces: bool
    after: int | None
    problem: Invalid | None
    together: bool = False


def read_handshake(scope: dict[str, Any]) -> Handshake:
    """Read the ASGI scope. A key is taken from the header, or from the subprotocols (browsers can't set headers); never
    from the query, where logs and proxies would keep it."""
    authorization = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            authorization = value.decode("latin-1")
    offered = list(scope.get("subprotocols") or ())
    if authorization is None:
        for offer in offered:
            if offer.startswith(_BEARER):
                authorization = "Bearer " + offer[len(_BEARER) :]
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    after, problem = None, None
    if "after" in query:
        if _NUMBER.fullmatch(query["after"]):
            after = int(query["after"])
        else:
            problem = Invalid("after is a sequence of this session.", field="after")
    return Handshake(
        authorization,
        SUBPROTOCOL if SUBPROTOCOL in offered else None,
        query.get("ack") == "manual",
        query.get("batch") == "1",
        query.get("run") == "1",
        after,
        problem,
        TEXTS in (scope.get("extensions") or ()),
    )
