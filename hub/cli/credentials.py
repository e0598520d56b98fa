"""Who we are and where the hub is: from options, the environment, or a file that nobody else can read."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_PROFILE = "default"


class Misconfigured(ValueError):
    """Something is missing or unsafe; the text says what to do."""


@dataclass(frozen=True)
class Identity:
    url: str
    agent_id: str
    api_key: str
    source: str


def config_path() -> Path:
    """`$HUB_CONFIG`, or `session-hub/credentials.json` in the user's configuration directory."""
    if (named := os.environ.get("HUB_CONFIG")) is not None:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "session-hub" / "credentials.json"


def load(path: Path) -> dict[str, Any]:
    """The profiles, `{name: {url, agent_id, api_key}}`. A file that others can read is refused: its keys are not secret."""
    try:
        with path.open(encoding="utf-8") as file:
            if os.name == "posix" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise Misconfigured(f"{path} can be read by others: chmod 600 {path}")
            content = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Misconfigured(f"{path} cannot be read: {error}") from None
    profiles = content.get("profiles") if isinstance(content, dict) else None
    return profiles if isinstance(profiles, dict) else {}


def save(path: Path, name: str, identity: Identity) -> None:
    """Write one profile beside the others: a new file with mode 0600 that takes the old one's place at once."""
    profiles = load(path)
    profiles[name] = {"url": identity.url, "agent_id": identity.agent_id, "api_key": identity.api_key}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".credentials-")  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"profiles": profiles}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def identity(*, profile: str | None, url: str | None = None, agent_id: str | None = None) -> Identity:
    """Options win over the environment (HUB_URL, HUB_AGENT, HUB_API_KEY), that over the file's profile.

    A key is never taken from the command line: other users of the machine could read it there.
    """
    environment = os.environ
    wanted = profile or environment.get("HUB_PROFILE")
    key = environment.get("HUB_API_KEY")
    stored: dict[str, Any] = {}
    # The environment is complete, or a profile was asked for: only then does the file not matter, or matter alone.
    if wanted is not None or not key or not (url or environment.get("HUB_URL")):
        profiles = load(config_path())
        if wanted is not None and wanted not in profiles:
            raise Misconfigured(f"there is no profile {wanted!r} in {config_path()}: hub login --profile {wanted}")
        stored = profiles.get(wanted or DEFAULT_PROFILE, {})
    if wanted is None:
        chosen = (
            url or environment.get("HUB_URL") or stored.get("url"),
            agent_id or environment.get("HUB_AGENT") or stored.get("agent_id"),
            key or stored.get("api_key"),
        )
    else:
        chosen = (url or stored.get("url"), agent_id or stored.get("agent_id"), stored.get("api_key"))
    if not chosen[0]:
        raise Misconfigured("no hub is known: `hub login`, or set HUB_URL and HUB_API_KEY")
    if not chosen[2]:
        raise Misconfigured("no key is known: `hub login`, or set HUB_API_KEY")
    source = "environment" if wanted is None and key else f"profile {wanted or DEFAULT_PROFILE}"
    return Identity(str(chosen[0]), str(chosen[1] or ""), str(chosen[2]), source)
