"""What can go wrong while reading a workspace: one tree, each error with a stable `code`."""

from __future__ import annotations

from typing import ClassVar


class WorkspaceError(Exception):
    """`str(error)` is fit to be shown: it quotes what the caller asked for and never a path outside the roots."""

    code: ClassVar[str] = "workspace"


class OutsideRoots(WorkspaceError):
    code = "outside_roots"


class NotFound(WorkspaceError):
    """`near` holds names that look like the one that was asked for."""

    code = "not_found"

    def __init__(self, message: str, near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.near = near


class WrongKind(WorkspaceError):
    """A directory where a file is needed, the reverse, or a device, pipe or socket."""

    code = "wrong_kind"


class Unreadable(WorkspaceError):
    """The operating system refused: permissions, a loop of links, an I/O error."""

    code = "unreadable"


class TooLarge(WorkspaceError):
    code = "too_large"


class Binary(WorkspaceError):
    code = "binary"


class InvalidPattern(WorkspaceError):
    code = "invalid_pattern"


class Timeout(WorkspaceError):
    code = "timeout"


class Cancelled(WorkspaceError):
    code = "cancelled"
