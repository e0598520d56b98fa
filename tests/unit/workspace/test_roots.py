from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workspace.trees import plant
from traces_app.workspace.errors import NotFound, OutsideRoots, Unreadable, WorkspaceError, WrongKind
from traces_app.workspace.roots import Roots, _refuse_odd_paths


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """`allowed` with a file and a directory; `secret.txt` and `elsewhere` lie beside it."""
    plant(tmp_path / "allowed", {"a.txt": "a", "sub/b.txt": "b", "..hidden": "h"})
    plant(tmp_path, {"secret.txt": "secret", "elsewhere/b.txt": "secret", "allowed-not/x.txt": "secret"})
    return Roots([tmp_path / "allowed"])


def read(roots: Roots, path: str) -> str:
    with roots.open_file(path) as opened:
        return os.read(opened.fd, 1000).decode()


@pytest.mark.parametrize(
    "path",
    ["a.txt", "./a.txt", "sub/../a.txt", "sub/./../a.txt", "sub//../a.txt", "..hidden"],
)
def test_paths_inside_are_found(roots: Roots, path: str) -> None:
    assert roots.resolve(path).parent == roots.directories[0]


def test_an_absolute_path_below_a_root_is_found(roots: Roots) -> None:
    assert read(roots, str(roots.directories[0] / "sub" / "b.txt")) == "b"


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret.txt",
        "sub/../../secret.txt",
        "./../allowed-not/x.txt",
        "/etc/passwd",
        "/",
        "",
        "a.txt\0",
        "a\n.txt",
        "\x1b[2J",
        "..\\secret.txt",
        "sub\\b.txt",
        "C:x",
        "C:\\windows",
        "c:/windows",
        "\\\\server\\share",
        "\ud800",
        "a" * 5000,
    ],
)
def test_paths_outside_are_refused(roots: Roots, path: str) -> None:
    with pytest.raises(OutsideRoots) as refused:
        roots.open(path)
    assert refused.value.code == "outside_roots"
    assert "\x1b" not in str(refused.value)


def test_an_absolute_path_beside_or_through_a_root_is_refused(roots: Roots, tmp_path: Path) -> None:
    for path in (tmp_path / "allowed-not" / "x.txt", tmp_path / "secret.txt", tmp_path):
        with pytest.raises(OutsideRoots):
            roots.open(path)
    with pytest.raises(OutsideRoots):
        roots.open(f"{tmp_path}/allowed/../secret.txt")


@pytest.mark.parametrize(
    "path", ["..%2Fsecret.txt", "%2e%2e/secret.txt", "~/.ssh", "file:///etc/passwd", "a.txt/x", "x" * 300]
)
def test_what_looks_like_a_trick_is_a_name_that_does_not_exist(roots: Roots, path: str) -> None:
    with pytest.raises(NotFound):
        roots.open(path)


def test_without_roots_nothing_may_be_read(tmp_path: Path) -> None:
    assert not Roots()
    for path in (".", "a", "/", str(tmp_path)):
        with pytest.raises(OutsideRoots, match="no roots"):
            Roots().open(path)


@pytest.mark.parametrize("target", ["{outside}/secret.txt", "../secret.txt", "../../etc/passwd", "/etc/passwd", "/"])
def test_a_link_that_leads_out_is_refused(roots: Roots, tmp_path: Path, target: str) -> None:
    os.symlink(target.format(outside=tmp_path), tmp_path / "allowed" / "link")
    with pytest.raises(OutsideRoots):
        roots.open("link")


def test_a_link_in_the_middle_that_leads_out_is_refused(roots: Roots, tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere", tmp_path / "allowed" / "middle")
    os.symlink("middle", tmp_path / "allowed" / "chain")
    for path in ("middle/b.txt", "chain/b.txt", "sub/../chain/b.txt"):
        with pytest.raises(OutsideRoots):
            roots.open(path)


def test_a_link_that_stays_inside_is_followed(roots: Roots, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    os.symlink("../a.txt", allowed / "sub" / "up")
    os.symlink(allowed / "sub", allowed / "absolute")
    os.symlink("sub", allowed / "relative")
    assert read(roots, "sub/up") == "a"
    assert read(roots, "absolute/b.txt") == "b"
    assert roots.resolve("relative/b.txt") == allowed / "sub" / "b.txt"


def test_dotdot_after_a_link_is_the_real_parent(roots: Roots, tmp_path: Path) -> None:
    plant(tmp_path / "allowed", {"deep/er/c.txt": "c", "deep/d.txt": "d"})
    os.symlink("deep/er", tmp_path / "allowed" / "jump")
    assert read(roots, "jump/../d.txt") == "d"
    with pytest.raises(OutsideRoots):
        roots.open("jump/../../../secret.txt")


def test_a_loop_of_links_ends(roots: Roots, tmp_path: Path) -> None:
    os.symlink("two", tmp_path / "allowed" / "one")
    os.symlink("one", tmp_path / "allowed" / "two")
    with pytest.raises(Unreadable):
        roots.open("one")


def test_a_directory_swapped_for_a_link_while_it_is_walked_changes_nothing(
    roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open
    swapped: list[bool] = []

    def open_after_swap(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "b.txt" and not swapped:
            swapped.append(True)
            os.rename(tmp_path / "allowed" / "sub", tmp_path / "allowed" / "moved")
            os.symlink(tmp_path / "elsewhere", tmp_path / "allowed" / "sub")
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_after_swap)
    assert read(roots, "sub/b.txt") == "b"
    assert swapped
    with pytest.raises(OutsideRoots):
        read(roots, "sub/b.txt")


def test_pipes_sockets_and_devices_are_refused_and_never_waited_for(roots: Roots, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "allowed" / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(tmp_path / "allowed")  # the path of a socket is short
        try:
            listener.bind("sock")
        finally:
            os.chdir(here)
        for name in ("pipe", "sock"):
            with pytest.raises(WrongKind):
                roots.open(name)


def test_a_root_that_is_itself_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    plant(tmp_path / "real", {"a.txt": "a"})
    os.symlink(tmp_path / "real", tmp_path / "alias")
    roots = Roots([tmp_path / "alias"])
    assert read(roots, "a.txt") == "a"
    assert read(roots, str(tmp_path / "alias" / "a.txt")) == "a"
    assert read(roots, str(tmp_path / "real" / "a.txt")) == "a"


def test_several_roots_are_tried_in_order_and_links_may_cross_them(tmp_path: Path) -> None:
    plant(tmp_path / "one", {"a.txt": "first"})
    plant(tmp_path / "two", {"a.txt": "second", "only.txt": "two"})
    os.symlink(tmp_path / "two" / "only.txt", tmp_path / "one" / "across")
    roots = Roots([tmp_path / "one", tmp_path / "two"])
    assert (read(roots, "a.txt"), read(roots, "only.txt"), read(roots, "across")) == ("first", "two", "two")
    with pytest.raises(NotFound):
        roots.open("nowhere")


def test_a_root_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Roots([tmp_path / "gone"]).open(".")


def test_no_descriptor_is_left_open(roots: Roots, tmp_path: Path) -> None:
    os.symlink("../secret.txt", tmp_path / "allowed" / "out")
    os.mkfifo(tmp_path / "allowed" / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("a.txt", "sub/b.txt", "out", "pipe", "nowhere", "../x", "sub/nowhere", "."):
        try:
            roots.open(path).close()
        except WorkspaceError:
            pass
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("path", ["con", "NUL.txt", "a/aux.c", "com1", "a.txt:stream"])
def test_device_names_are_refused_where_they_are_devices(path: str) -> None:
    assert _refuse_odd_paths(path, windows=False) == path
    with pytest.raises(OutsideRoots):
        _refuse_odd_paths(path, windows=True)


def test_the_message_of_an_error_names_no_path_outside_the_request(roots: Roots, tmp_path: Path) -> None:
    for path in ("nowhere", "../x"):
        with pytest.raises(WorkspaceError) as error:
            roots.open(path)
        assert str(tmp_path) not in str(error.value)
