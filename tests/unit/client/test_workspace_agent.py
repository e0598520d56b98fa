from __future__ import annotations

from pathlib import Path

import pytest

from hub.cli.workspace import Guide


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """core/ (three layers), api that uses it, util, and a secret outside of the root."""
    root = tmp_path / "project"
    (root / "core").mkdir(parents=True)
    (root / "core" / "__init__.py").write_text('"""The heart of it."""\n')
    (root / "core" / "views.py").write_text("from core import services\n\n\ndef show():\n    return services.run()\n")
    (root / "core" / "services.py").write_text("from core import models\n\n\ndef run():\n    return models.Thing()\n")
    (root / "core" / "models.py").write_text(
        'class Thing:\n    """A thing."""\n\n    def name(self):\n        return ""\n'
    )
    for name, text in (("api", "from core import views\n"), ("util", "X = 1\n")):
        (root / name).mkdir()
        (root / name / "__init__.py").write_text(text)
    (tmp_path / "secret.txt").write_text("the secret")
    return root


def test_the_conversation_of_the_seed_comes_out(project: Path) -> None:
    guide = Guide(project)
    first = guide.answer("s", "请分析本地项目")
    assert first is not None
    assert "我看到有3个模块：" in first
    assert "core" in first
    assert "哪个模块" in first
    second = guide.answer("s", "重点分析core模块")
    assert second is not None
    assert "core模块使用了" in second
    assert second.endswith("需要我详细说明吗？")
    third = guide.answer("s", "是的，请详细说明架构设计和关键组件")
    assert third is not None
    assert "core/models.py:1" in third
    assert "Thing" in third
    assert "哪个模块" not in third
    assert "详细说明" not in third
    assert guide.answer("s", "谢谢！") is None


def test_it_answers_in_english_when_asked_in_english(project: Path) -> None:
    guide = Guide(project)
    first = guide.answer("s", "please analyse the local project")
    assert first is not None
    assert "core" in first
    second = guide.answer("s", "focus on the core module")
    assert second is not None
    assert "The core module uses" in second
    third = guide.answer("s", "yes, please")
    assert third is not None
    assert "core/models.py:1" in third


def test_sessions_are_kept_apart(project: Path) -> None:
    guide = Guide(project)
    guide.answer("one", "分析core模块")
    other = guide.answer("two", "请详细说明")
    assert other is not None
    assert "详细架构" not in other


def test_an_unknown_module_is_said_to_be_unknown(project: Path) -> None:
    answer = Guide(project).answer("s", "重点分析nothing模块")
    assert answer is not None
    assert "没有叫“nothing”的模块" in answer
    assert "core" in answer


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/hostname.txt", "core/../../secret.txt"])
def test_nothing_outside_its_root_is_read(project: Path, path: str) -> None:
    answer = Guide(project).answer("s", f"读取文件{path}")
    assert answer is not None
    assert "secret" not in answer.replace("secret.txt", "")


def test_files_are_read_and_searched(project: Path) -> None:
    guide = Guide(project)
    assert "class Thing" in str(guide.answer("s", "read file core/models.py"))
    assert "core/models.py:1" in str(guide.answer("s", "搜索class Thing"))


def test_it_does_not_explain_itself_twice_in_a_row(project: Path) -> None:
    guide = Guide(project)
    assert guide.answer("s", "你好") is not None
    assert guide.answer("s", "你好") is None


def test_what_has_changed_on_the_disk_is_seen(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.cli.workspace.FRESH_SECONDS", 0.0)
    guide = Guide(project)
    assert "3个模块" in str(guide.answer("s", "分析项目"))
    (project / "more").mkdir()
    (project / "more" / "__init__.py").write_text("Y = 2\n")
    assert "4个模块" in str(guide.answer("s", "分析项目"))
