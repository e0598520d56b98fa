"""A piece of text that is being written, on its way to those who may see it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from sessions_app.context.profiles import View
from sessions_app.context.provenance import Provenance
from sessions_app.context.provenance import read as read_provenance


class _Sender(Struct):
    from_: str = msgspec.field(name="from")


@dataclass(frozen=True)
class Piece:
    """A `chunk` frame. What travels between processes is `{"session_pk", "stream_id", "frame"}`; `by`, the key of the agent whose
    socket it came from (a worker's has none); and, where the text is made of others' words, `provenance`."""

    fields: dict[str, Any]

    @property
    def frame(self) -> str:
        return str(self.fields["frame"])

    def is_for(self, view: View, *, asked: bool = False) -> bool:
        """Whether this reader may get it; `asked`: it belongs to an answer to him. The common case looks at nothing."""
        return not view or view.trusts(self._sender, self._made_of, asked=asked)

    @cached_property
    def _sender(self) -> str:
        return msgspec.json.decode(self.frame, type=_Sender).from_

    @cached_property
    def _made_of(self) -> Provenance | None:
        return read_provenance(self.fields.get("provenance"))
