"""The settings that `manage.py serve` implies, put into the environment before Django reads it. No Django in here."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def port(given: str) -> int:
    """A TCP port; raises what argparse shows."""
    if not (given.isascii() and given.isdecimal()) or not 1 <= int(given[:6]) <= 65535:
        raise argparse.ArgumentTypeError(f"{given} is not a port: 1 to 65535")
    return int(given)


def directory(given: str) -> str:
    """One that is there; raises what argparse shows."""
    if not Path(given).expanduser().is_dir():
        raise argparse.ArgumentTypeError(f"{given} is not a directory")
    return given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=port, default=8000, help="port to listen on (8000)")
    parser.add_argument("--data", metavar="DIR", help="where the hub keeps its data (.hub beside manage.py)")
    parser.add_argument(
        "--root",
        action="append",
        type=directory,
        metavar="DIR",
        default=None,
        help="a directory that built-in tools may read; none by default",
    )


def prepare(arguments: list[str], base: Path) -> None:
    """Point the settings at the data directory that `arguments` name: its own SQLite file, no Redis."""
    parser = argparse.ArgumentParser(prog="manage.py serve", add_help=False)
    add_arguments(parser)
    given, _ = parser.parse_known_args(arguments)
    data = Path(given.data or os.environ.get("HUB_DATA_DIR") or base / ".hub").expanduser().resolve()
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        parser.error(f"argument --data: {data}: {error.strerror}")
    os.environ["HUB_DATA_DIR"] = str(data)
    os.environ["DATABASE_URL"] = f"sqlite:///{data / 'hub.sqlite3'}"
    os.environ.pop("REDIS_URL", None)
    os.environ["HUB_EMBEDDED"] = "1"
    if given.host not in {"127.0.0.1", "localhost", "0.0.0.0", "::", "::1"}:
        hosts = os.environ.get("HUB_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1],testserver")
        os.environ["HUB_ALLOWED_HOSTS"] = f"{hosts},{given.host}"
    if given.root:
        os.environ["HUB_ROOTS"] = ",".join(str(Path(root).expanduser().resolve()) for root in given.root)
