"""`python:…` names: what is looked at where they are set runs nothing; what fails where they are used has one code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from traces_app.executors.python_function import missing_module
from traces_app.executors.registry import UnknownExecutor, check_name, find_executor


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `plugs` on the import path; whatever is imported of it fails."""
    (tmp_path / "plugs" / "deep").mkdir(parents=True)
    for name in ("__init__", "deep/__init__", "deep/leaf", "plain"):
        (tmp_path / "plugs" / f"{name}.py").write_text("raise ValueError('imported')\n")
    (tmp_path / "spaces" / "inner").mkdir(parents=True)
    (tmp_path / "spaces" / "inner" / "leaf.py").write_text("def f(request, report): return 'done'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("module", "missing"),
    [
        ("plugs", None),
        ("plugs.plain", None),
        ("plugs.deep.leaf", None),
        ("spaces.inner.leaf", None),
        ("os.path", None),
        ("json", None),
        ("plug", "plug"),
        ("plug.deep", "plug"),
        ("plugs.nothing", "plugs.nothing"),
        ("plugs.plain.leaf", "plugs.plain.leaf"),
        ("plugs.deep.nothing.leaf", "plugs.deep.nothing"),
    ],
)
def test_a_module_is_looked_for_without_being_run(plugins: Path, module: str, missing: str | None) -> None:
    assert missing_module(module) == missing
    assert not {"plugs", "plugs.deep", "spaces"} & sys.modules.keys()


def test_what_is_not_found_is_a_remark_and_no_refusal(plugins: Path) -> None:
    assert check_name("python:plugs.deep.leaf:f") is None
    assert check_name("planner") is None
    remark = check_name("python:plugs.nothing:f")
    assert remark is not None
    assert "python:plugs.nothing:f" in remark
    assert "no module plugs.nothing" in remark


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("python:plugs.nothing:f", "ValueError"),  # its package raises before
        ("python:nothing.at_all:f", "ModuleNotFoundError"),
        ("python:plugs.deep.leaf:f", "ValueError"),
        ("python:spaces.inner.leaf:g", "AttributeError"),
        ("python:spaces.inner.leaf:__name__", "TypeError"),
    ],
)
def test_what_can_not_be_loaded_is_an_unknown_executor_by_its_name(plugins: Path, name: str, why: str) -> None:
    with pytest.raises(UnknownExecutor) as error:
        find_executor(name)
    assert str(error.value) == f"The executor {name} can't be loaded: {why}."


def test_what_can_be_loaded_runs(plugins: Path) -> None:
    assert callable(find_executor("python:spaces.inner.leaf:f").run)
