"""What `manage.py serve` is given: a mistake is told in a sentence, before anything is made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hub.embedded.environment import prepare


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it sets is gone after the test."""
    for name in ("HUB_DATA_DIR", "DATABASE_URL", "REDIS_URL", "HUB_EMBEDDED", "HUB_ALLOWED_HOSTS", "HUB_ROOTS"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "0"], "0 is not a port: 1 to 65535"),
        (["--port", "65536"], "65536 is not a port"),
        (["--port", "99999999999999999999"], "is not a port"),
        (["--port", "-1"], "is not a port"),
        (["--port", "http"], "http is not a port"),
        (["--root", "nowhere"], "nowhere is not a directory"),
        (["--root", "file"], "file is not a directory"),
        (["--root", ".", "--root", "nowhere"], "nowhere is not a directory"),
        (["--data", "file"], "File exists"),
        (["--data", "file/below"], "Not a directory"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        prepare(arguments, tmp_path)
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("manage.py serve: error: argument --")
    assert said in last


def test_what_is_right_becomes_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    prepare(["--port", "65535", "--data", "new/data", "--root", "project", "--root", "."], tmp_path)
    assert (tmp_path / "new" / "data").stat().st_mode & 0o777 == 0o700
    assert os.environ["HUB_ROOTS"] == f"{tmp_path / 'project'},{tmp_path}"
    assert os.environ["DATABASE_URL"].endswith("/new/data/hub.sqlite3")
