from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces_app.planner import words
from traces_app.planner.clauses import read_request
from traces_app.planner.plan import plan
from traces_app.planner.tasks import (
    Call,
    Facts,
    ListDirectory,
    ModuleReports,
    Overview,
    Plan,
    ReadFile,
    Search,
    Task,
)

TOOLS = ("read_file", "add")
FOCUS = {"focus_module": "core"}


def planned(text: str, context: dict[str, object] | None = None) -> Plan:
    return plan(text, context or {}, tools=TOOLS)


def report(*modules: str, full: bool = False) -> ModuleReports:
    return ModuleReports(modules, full)


@pytest.mark.parametrize(
    "text",
    [
        "请分析本地项目",
        "分析项目",
        "分析一下这个项目",
        "帮我看看这个项目",
        "你好，请分析本地项目",
        "项目有哪些模块？",
        "列出所有模块",
        "分析核心模块",
        "执行项目分析",
        "对整个项目进行分析",
        "麻烦你扫描一下代码库",
        "能不能分析一下本地项目？",
        "不要翻译，只分析项目",
        "analyse the local project",
        "Please analyze this repository.",
        "Could you scan the codebase?",
        "what modules are there?",
        "list modules",
        "show me the modules",
        "give me an overview of the project",
        "run an analysis of the project",
        "describe this project",
    ],
)
def test_the_project_as_a_whole_is_asked_for(text: str) -> None:
    (task,) = planned(text).tasks
    assert isinstance(task, Overview)


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("重点分析core模块", report("core")),
        ("分析core", report("core")),
        ("分析 core、api 和 utils 模块", report("core", "api", "utils")),
        ("分析core和api", report("core", "api")),
        ("core模块", report("core")),
        ("core", report("core")),
        ("worker模块是如何实现的？", report("worker", full=True)),
        ("分析并发模块", report("并发")),
        ("分析一下支付模块", report("支付")),
        ("请详细分析core模块", report("core", full=True)),
        ("对core模块进行详细分析", report("core", full=True)),
        ("把core模块分析一下", report("core")),
        ("core 模块有循环依赖吗", report("core", full=True)),
        ("分析 core 模块的架构", report("core", full=True)),
        ("分析 src/core/base.py", report("src/core/base.py")),
        ("focus on the core module", report("core")),
        ("Please focus on core", report("core")),
        ("tell me about the core package in detail", report("core", full=True)),
        ("focus on core and api modules, in detail", report("core", "api", full=True)),
        ("what is the architecture of core?", report("core", full=True)),
        ("explain how core works", report("core", full=True)),
        ("I'd like you to analyse core.app", report("core.app")),
        ("不要分析tests，只看core", report("core")),
        # a module may be called like a verb that needs a model, and may be quoted
        ("分析 translate 模块", report("translate")),
        ("分析翻译模块", report("翻译")),
        ("analyse the rewrite module", report("rewrite")),
        ("分析 `run` 模块", report("run")),
        ("分析“write”", report("write")),
    ],
)
def test_modules_are_asked_for_by_name(text: str, task: Task) -> None:
    assert planned(text).tasks == (task,)


@pytest.mark.parametrize(
    "text",
    [
        "是的，请详细说明",
        "是的，请详细说明架构设计和关键组件",
        "是的",
        "好的，继续",
        "继续",
        "请详细说明",
        "它的架构是什么",
        "这个模块有循环依赖吗？",
        "yes please",
        "yes, in detail",
        "what are its key components?",
        "explain the architecture",
        "go into detail",
    ],
)
def test_details_are_about_the_module_that_the_session_is_at(text: str) -> None:
    found = planned(text, dict(FOCUS))
    assert found.tasks == (report("core", full=True),)
    assert found.used == {"focus_module": "core"}


@pytest.mark.parametrize("focus", [None, 7, "", "x" * 500, ["core"], {"a": 1}])
def test_a_focus_that_is_no_name_is_not_used(focus: object) -> None:
    (task,) = planned("请详细说明架构", {"focus_module": focus}).tasks
    assert isinstance(task, Overview)


def test_a_later_clause_is_about_the_module_of_an_earlier_one() -> None:
    found = planned("重点分析api模块，详细说明架构设计和关键组件", dict(FOCUS))
    assert found.tasks == (report("api", full=True),)
    assert found.used == {}


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("读取文件X", ReadFile("X")),
        ("读取 README.md", ReadFile("README.md")),
        ("读取文件 设计说明.md", ReadFile("设计说明.md")),
        ("请帮我打开 core/base.py 的内容", ReadFile("core/base.py")),
        ("查看 README", ReadFile("README")),
        ("打开 core/base.py 第10到20行", ReadFile("core/base.py", 10, 20)),
        ("读取 a.py 前30行", ReadFile("a.py", 1, 30)),
        ("读取 “my file.txt”", ReadFile("my file.txt")),
        ("read file README.md", ReadFile("README.md")),
        ("please show me src/a.py", ReadFile("src/a.py")),
        ("read lines 10-20 of src/a.py", ReadFile("src/a.py", 10, 20)),
        ("cat src/a.py:5-7", ReadFile("src/a.py", 5, 7)),
        ("analyse package.json", ReadFile("package.json")),
        ("读取 ../../etc/passwd", ReadFile("../../etc/passwd")),
        ("read /etc/passwd", ReadFile("/etc/passwd")),
        ("read C:\\windows\\win.ini", ReadFile("C:\\windows\\win.ini")),
        ("列出 src 目录", ListDirectory("src")),
        ("列出目录", ListDirectory(".")),
        ("list files in src", ListDirectory("src")),
        ("ls src/core", ListDirectory("src/core")),
        ("搜索 TODO", Search("TODO")),
        ("搜索 “class Foo”", Search("class Foo")),
        ("在 src 目录下搜索 TODO", Search("TODO", "src")),
        ("search for TODO in src/", Search("TODO", "src/")),
        ('grep "import os" in hub', Search("import os", "hub")),
        ("搜索 重构", Search("重构")),
        ("search for read and write access", Search("read and write access")),
        (r"搜索 /def \w+_test/", Search(r"def \w+_test", regex=True)),
        ("find all usages of UserModel", Search("UserModel")),
        ("查找 UserModel 的用法", Search("UserModel")),
        ("有循环依赖吗", Facts("cycles")),
        ("find circular imports", Facts("cycles")),
        ("项目有哪些第三方依赖", Facts("dependencies")),
        ("what are the entry points?", Facts("entry_points")),
        ("how many tests are there?", Facts("tests")),
        ("check for syntax errors", Facts("problems")),
        ('/tool add {"a": 1, "b": [2]}', Call("add", {"a": 1, "b": [2]})),
        ("/tool add", Call("add", {})),
        ('  /tool read_file\n{"path": "a"}', Call("read_file", {"path": "a"})),
    ],
)
def test_files_searches_facts_and_tools_are_asked_for(text: str, task: Task) -> None:
    assert planned(text, dict(FOCUS)).tasks == (task,)


@pytest.mark.parametrize(
    "text", ["Foo 在哪里定义", "Where is class Foo defined?", "查找类 Foo", "find the definition of Foo"]
)
def test_a_definition_is_searched_for_as_one(text: str) -> None:
    (task,) = planned(text).tasks
    assert isinstance(task, Search)
    assert task.regex
    assert "Foo" in task.query
    assert task.glob == "*.py"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("把 README 翻译成英文", "model"),
        ("翻译 README", "model"),
        ("把 README 翻译成英文并重构 app 的代码", "model"),
        ("分析项目并翻译成英文", "model"),
        ("分析项目，然后重构core模块", "model"),
        ("请帮我重写core模块", "model"),
        ("对core模块进行重构", "model"),
        ("给core模块写测试", "model"),
        ("写一篇文章", "model"),
        ("生成架构图", "model"),
        ("分析项目并给出重构建议", "model"),
        ("为什么core模块这么慢", "model"),
        ("如何优化 core 模块", "model"),
        ("推荐一个适合今天天气的户外活动", "model"),
        ("评审 core 模块", "model"),
        ("translate the README", "model"),
        ("can you translate the README and then analyse the project?", "model"),
        ("analyse the project and rewrite it", "model"),
        ("could you please refactor core", "model"),
        ("rewrite core/base.py", "model"),
        ("search for TODO and fix them", "model"),
        ("why is core slow", "model"),
        ("compare core and api", "model"),
        ("review the core module", "model"),
        ("运行测试", "execute"),
        ("执行 pytest", "execute"),
        ("删除 core 模块", "execute"),
        ("部署项目", "execute"),
        ("run the tests", "execute"),
        ("delete core", "execute"),
        ("pip install 之后分析项目，安装 numpy", "execute"),
        ("下载 https://example.com/x.zip", "web"),
        ("搜索网上的资料", "web"),
        ("search the web for django", "web"),
        ("send an email to everyone", "web"),
    ],
)
def test_what_needs_a_model_a_shell_or_the_web_is_refused_whatever_else_is_asked(text: str, reason: str) -> None:
    refusal = planned(text, dict(FOCUS)).refusal
    assert refusal is not None
    assert (refusal.code, refusal.reason) in (("unsupported", reason), ("unsupported", "not_understood"))
    if not text.startswith("pip"):
        assert refusal.reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "请分析一下股票走势",
        "帮我查询北京今天的天气",
        "分析师怎么看",
        "find the best restaurant",
        "列出购物清单",
        "overwrite the file",
        "read me the news",
        "what is the weather in Beijing?",
        "analyse the weather data of Beijing today",
        "当前进度如何？",
        "说说 core 和 api 的区别",
        "请假三天",
        "帮我找一家餐厅",
        "预测明天的股价",
        "读者反馈很好",
        "搜索引擎是什么",
    ],
)
def test_what_has_nothing_to_do_with_a_project_is_not_answered_with_one(text: str) -> None:
    found = planned(text, dict(FOCUS))
    assert found.tasks == ()
    assert found.refusal is not None
    assert found.refusal.code == "unsupported"


@pytest.mark.parametrize(
    "text", ["你好", "谢谢", "收到", "你能做什么？", "help", "Hello!", "thank you", "请", "", "   ", "?"]
)
def test_chat_and_questions_for_help_are_no_analysis(text: str) -> None:
    found = planned(text, dict(FOCUS))
    assert (found.tasks, found.refusal) == ((), None)


def test_a_yes_without_anything_to_say_yes_to_is_chat() -> None:
    assert (planned("是的").tasks, planned("是的").refusal) == ((), None)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("/tool nope {}", "unknown_tool"),
        ("/tool add {a: 1}", "invalid"),
        ("/tool add [1]", "invalid"),
        ('/tool add {"a": NaN}', "invalid"),
        ("/tool add " + "[" * 100_000, "invalid"),
        ("/tool", "invalid"),
    ],
)
def test_a_broken_tool_call_is_refused_with_a_code(text: str, code: str) -> None:
    refusal = planned(text).refusal
    assert refusal is not None
    assert refusal.code == code


def test_several_requests_become_several_tasks_in_order() -> None:
    found = planned("列出 src 目录，读取 README.md，然后分析 core 模块并搜索 TODO")
    assert found.tasks == (ListDirectory("src"), ReadFile("README.md"), report("core"), Search("TODO"))


def test_several_files_of_one_clause_are_all_read() -> None:
    assert planned("read a/b.py and c.md").tasks == (ReadFile("a/b.py"), ReadFile("c.md"))
    assert planned("读取 a/b.py、c.md 和 d.txt").tasks == (ReadFile("a/b.py"), ReadFile("c.md"), ReadFile("d.txt"))


def test_the_goals_show_every_step_with_its_tool() -> None:
    goals = planned("读取 README.md，然后重点分析core模块").goals
    assert [(g.goal_id, g.parent_id, g.step.tool if g.step else None) for g in goals] == [
        ("g", None, None),
        ("g.1", "g", None),
        ("g.1.1", "g.1", "read_file"),
        ("g.2", "g", None),
        ("g.2.1", "g.2", "scan_project"),
        ("g.2.2", "g.2", "module_report"),
        ("g.2.3", "g.2", None),
    ]
    assert goals[0].title == "读取 README.md，然后重点分析core模块"
    assert [g.goal_id for g in planned("分析项目").goals] == ["g", "g.1", "g.2", "g.3", "g.4"]


def test_the_language_is_that_of_the_request_unless_told() -> None:
    assert planned("分析 core").language == "zh"
    assert planned("analyse core").language == "en"
    assert plan("analyse core", {}, "zh").goals[1].title == "扫描源代码"


def test_the_number_of_tasks_is_bounded() -> None:
    found = planned("；".join(f"读取 file{n}.py" for n in range(50)))
    assert 0 < len(found.tasks) <= 8


def test_both_languages_have_the_same_sentences() -> None:
    assert set(words.ZH) == set(words.EN)


@pytest.mark.parametrize(
    "text",
    [
        "分析" * 2000,
        "请" * 4000,
        "a " * 2000,
        "和" * 4000,
        "把" * 4000,
        "对" * 2000 + "进行",
        " and " * 800,
        "`" * 4000,
        "core、" * 1300,
        "where is " * 500,
        "在" * 4000,
        "a/" * 2000,
        ("list " * 800),
        "(" * 4000,
        "的" * 4000,
        "search for " + "x " * 1900,
    ],
)
def test_hostile_texts_are_read_like_any_other(text: str) -> None:
    planned(text, dict(FOCUS))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='分析请把读取模块核心和并再在的 core.py/\\`"“”/tool{}[]:,，。？?\n0-9\x00\ud800', max_size=60))
def test_any_text_gives_a_plan_and_the_same_one_again(text: str) -> None:
    assert planned(text, dict(FOCUS)) == planned(text, dict(FOCUS))


def test_words_inside_words_are_not_verbs() -> None:
    rnd = random.Random(7)
    inside = [
        "reread",
        "analyser",
        "researching",
        "translator",
        "fixture",
        "rerun",
        "prewritten",
        "listener",
        "readonly",
    ]
    for _ in range(50):
        text = " ".join(rnd.sample(inside, 3)) + " matter"
        found = planned(text)
        assert found.tasks == (), text
        assert found.refusal is not None
        assert found.refusal.reason == "not_understood"


def test_what_is_quoted_is_kept_as_it_stands() -> None:
    request = read_request("搜索 “请，分析。and then translate” 和 `a b`")
    assert len(request.clauses) == 1
    assert request.quotes == ("请，分析。and then translate", "a b")
