from __future__ import annotations

from pathlib import Path

import pytest

from hub.cli.workspace import Guide, small_talk


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
    assert str(guide.answer("s", "谢谢！")).startswith("不客气！我了解这个项目")
    assert guide.answer("s", "谢谢，再见") is None


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
    assert guide.answer("s", "天气怎么样") is not None
    assert guide.answer("s", "天气怎么样") is None


@pytest.mark.parametrize("text", ["hello", "Hi!", "hey there", "good morning", "Hello, hello?", "are you there?"])
def test_a_greeting_is_answered_with_what_it_can_do(project: Path, text: str) -> None:
    answer = str(Guide(project).answer("s", text))
    assert answer.startswith("Hello! I know this project")
    assert "\n" not in answer


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("你好", "你好！"),
        ("您好！", "你好！"),
        ("在吗？", "你好！"),
        ("谢谢你", "不客气！"),
        ("好的，谢谢啦", "不客气！"),
        ("thanks!", "You are welcome. "),
        ("Thank you very much.", "You are welcome. "),
        ("ok, thanks a lot", "You are welcome. "),
    ],
)
def test_thanks_and_greetings_are_answered_in_their_language(project: Path, text: str, begins: str) -> None:
    guide = Guide(project)
    guide.answer("s", "分析core模块")
    answer = str(guide.answer("s", text))
    assert answer.startswith(begins)
    assert "\n" not in answer


@pytest.mark.parametrize("text", ["bye", "Thank you, goodbye", "再见", "谢谢，再见", "收到", "got it", "明白了", "ok"])
def test_what_ends_a_talk_ends_it(project: Path, text: str) -> None:
    assert Guide(project).answer("s", text) is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "this",
            "history",
            "the hidden one",
            "thanksgiving",
            "hello core",
            "hi, show core/models.py",
            "你好，分析项目",
        ),
        *("好的core", "thanks, and the api module?", "ok, what about the tests of the project", "world", "!", ""),
    ],
)
def test_words_inside_words_and_requests_behind_a_courtesy_are_no_small_talk(project: Path, text: str) -> None:
    guide = Guide(project)
    assert small_talk(text) is None
    assert str(guide.answer("s", text)) not in (guide.answer("t", "hello"), guide.answer("t", "thanks"))


def test_an_agreement_is_not_taken_for_a_courtesy(project: Path) -> None:
    guide = Guide(project)
    guide.answer("s", "分析core模块")
    assert "core/models.py:1" in str(guide.answer("s", "好的"))


def test_two_agents_do_not_thank_each_other_for_ever(project: Path) -> None:
    guide = Guide(project)
    assert [guide.answer("s", "thanks") is None for _ in range(5)] == [False, False, False, True, True]
    guide.answer("s", "分析core模块")
    assert guide.answer("s", "thanks") is not None


def test_a_module_may_be_called_like_a_word_of_small_talk(project: Path) -> None:
    for name in ("hello", "nice"):
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("Z = 3\n")
    guide = Guide(project)
    assert str(guide.answer("s", "nice")).startswith("The nice module")
    assert str(guide.answer("s", "the hello module")).startswith("The hello module")


def test_a_greeting_does_not_wait_for_the_project_to_be_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(*given: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr("hub.cli.workspace.scan", scan)
    assert str(Guide(project).answer("s", "hello")).startswith("Hello!")
