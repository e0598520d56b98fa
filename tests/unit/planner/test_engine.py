from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workspace.trees import SHOP, plant
from traces_app.outcomes import Cancelled, Completed, Failed, Outcome
from traces_app.planner import engine
from traces_app.planner.engine import MAX_SUMMARY, run
from traces_app.planner.events import (
    ArtifactEvent,
    ContextEvent,
    Event,
    GoalEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from traces_app.planner.plan import plan
from traces_app.tools import Tool, ToolContext, ToolError
from traces_app.workspace.budget import never
from traces_app.workspace.roots import Roots
from traces_app.workspace.tools import workspace_registry

ANY = {"type": "object"}


@dataclass
class Bench:
    """A project and a session's context; `ask` plans, runs and keeps what happened."""

    roots: Roots
    context: dict[str, Any] = field(default_factory=dict)
    tools: list[Tool] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def ask(
        self,
        text: str,
        cancelled: Callable[[], bool] = never,
        deadline: float | None = None,
        reraise: tuple[type[BaseException], ...] = (),
        on_event: Callable[[Event], None] | None = None,
    ) -> Outcome:
        registry = workspace_registry()
        for tool in self.tools:
            registry.add(tool)
        self.events = []
        context = ToolContext(roots=self.roots, cancelled=cancelled, deadline=deadline)
        made = plan(text, self.context, tools=registry.names)
        outcome = run(made, registry, context, on_event or self.events.append, reraise)
        if isinstance(outcome, Completed):
            self.context.update(outcome.context_patch)
        return outcome

    def of(self, kind: type[Any]) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]

    def last_statuses(self) -> dict[str, str]:
        return {e.goal_id: e.status for e in self.of(GoalEvent)}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Roots([plant(tmp_path / "shop", SHOP)]))


def completed(outcome: Outcome) -> Completed:
    assert isinstance(outcome, Completed), outcome
    return outcome


def failed(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def tool(name: str, function: Callable[[Any, ToolContext], Any]) -> Tool:
    return Tool(name, "", ANY, function)


def test_the_conversation_of_the_seed_comes_out_with_the_session_remembering(bench: Bench) -> None:
    first = completed(bench.ask("请分析本地项目"))
    assert "我看到有3个模块：" in first.summary
    assert "哪个模块" in first.summary
    assert bench.context["current_topic"] == "项目分析"
    second = completed(bench.ask("重点分析core模块"))
    assert second.summary.endswith("core模块使用了分层架构（views → services → models），需要我详细说明吗？")
    assert bench.context["focus_module"] == "core"
    third = completed(bench.ask("是的，请详细说明架构设计和关键组件"))
    assert third.summary.startswith("详细架构：\n")
    assert "Item（core/models.py:1）" in third.summary
    assert [e.used for e in bench.of(ContextEvent)] == [{"focus_module": "core"}]


def test_the_same_in_english(bench: Bench) -> None:
    assert "; which one should I focus on?" in completed(bench.ask("Please analyse the local project")).summary
    assert "shall I explain it in detail?" in completed(bench.ask("focus on the core module")).summary
    assert completed(bench.ask("yes, in detail")).summary.startswith("Detailed architecture:")


def test_an_overview_of_2000_modules_ends_well_within_the_usual_limit(tmp_path: Path) -> None:
    files = {
        f"p{p}/m{m}.py": f"from p{(p + 1) % 40} import m{m}\n\n\nclass C{m}:\n    pass\n"
        for p in range(40)
        for m in range(50)
    }
    bench = Bench(Roots([plant(tmp_path / "big", files)]))
    summary = completed(bench.ask("analyse the project", deadline=time.monotonic() + 598)).summary
    assert "2000 Python modules" in summary
    assert "50 groups, the largest has 40 modules" in summary
    assert len(summary) <= MAX_SUMMARY
    assert set(bench.last_statuses().values()) == {"done"}


def test_every_goal_is_created_before_it_moves_and_ends(bench: Bench) -> None:
    bench.ask("请分析本地项目")
    seen: set[str] = set()
    for event in bench.of(GoalEvent):
        assert (event.goal_id in seen) == (event.action == "updated")
        assert event.parent_goal_id is None or event.parent_goal_id in seen
        seen.add(event.goal_id)
    statuses = bench.last_statuses()
    assert set(statuses.values()) == {"done"}
    assert {"g", "g.1", "g.2", "g.3", "g.3.1", "g.3.2", "g.3.3", "g.4"} == set(statuses)


def test_every_call_has_its_result_under_its_goal(bench: Bench) -> None:
    bench.ask("读取 README.md，然后分析 core 模块")
    calls, results = bench.of(ToolCallEvent), bench.of(ToolResultEvent)
    assert [c.call_id for c in calls] == [r.call_id for r in results]
    assert [c.name for c in calls] == ["read_file", "scan_project", "module_report"]
    assert [c.parent_id for c in calls] == ["g.1.1", "g.2.1", "g.2.2"]
    assert bench.of(UsageEvent)[0].tool_calls == 3
    for event in bench.events:
        assert json.loads(json.dumps(event.data(), allow_nan=False)) is not None


def test_a_second_run_says_the_same_with_the_same_goals(bench: Bench) -> None:
    def story() -> list[tuple[str, Any]]:
        outcome = completed(bench.ask("请分析本地项目"))
        told = [(e.type, {k: v for k, v in e.data().items() if k != "milliseconds"}) for e in bench.events]
        return [*told, ("outcome", outcome)]

    assert story() == story()


def test_a_request_for_several_modules_reports_on_each(bench: Bench) -> None:
    outcome = completed(bench.ask("分析 core 和 utils 模块"))
    assert "core模块（core）" in outcome.summary
    assert "utils模块（utils）" in outcome.summary
    assert outcome.context_patch["focus_module"] == "utils"


def test_a_part_that_fails_is_said_beside_the_parts_that_worked(bench: Bench) -> None:
    outcome = completed(bench.ask("读取 nowhere.py，然后读取 README.md"))
    assert "# The shop" in outcome.summary
    assert "其中一部分没有完成：没有找到：nowhere.py" in outcome.summary
    assert bench.last_statuses()["g.1"] == "failed"
    assert bench.last_statuses()["g"] == "done"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("读取 ../../etc/passwd", "outside_roots", "不在允许读取的目录里：../../etc/passwd"),
        ("read file /etc/passwd", "outside_roots", "Outside the directories that may be read: /etc/passwd"),
        ("读取 READM.md", "not_found", "没有找到：READM.md。相近的有：README.md"),
        ("读取 picture.png", "binary", "不是文本文件：picture.png"),
        ("分析 nope 模块", "not_found", "没有叫“nope”的模块。我看到有3个模块："),
        ("翻译 README", "unsupported", "需要大模型"),
        ("run the tests", "unsupported", "I run nothing and change nothing"),
        ("帮我查询北京今天的天气", "unsupported", "我能做："),
        ("/tool nope {}", "unknown_tool", "read_file"),
        ('/tool read_file {"wrong": 1}', "invalid", "path"),
        ("搜索正则 (", "invalid_pattern", "搜索式不能用"),
    ],
)
def test_what_fails_says_why_in_the_language_of_the_request(
    bench: Bench, tmp_path: Path, text: str, code: str, words: str
) -> None:
    plant(tmp_path / "shop", {"picture.png": b"\0\1\2"})
    outcome = failed(bench.ask(text))
    assert outcome.code == code
    assert words in outcome.message
    assert "open" not in bench.last_statuses().values()
    assert "running" not in bench.last_statuses().values()


def test_without_roots_it_says_that_nothing_may_be_read() -> None:
    outcome = failed(Bench(Roots()).ask("请分析本地项目"))
    assert (outcome.code, outcome.message.count("没有配置 roots")) == ("outside_roots", 1)


def test_help_and_greetings_complete_with_what_can_be_done(bench: Bench) -> None:
    outcome = completed(bench.ask("你好"))
    assert "分析项目或模块" in outcome.summary
    assert bench.events == []


def test_a_registered_tool_is_called_with_its_arguments(bench: Bench) -> None:
    bench.tools = [tool("add", lambda a, c: {"sum": a["a"] + a["b"]})]
    outcome = completed(bench.ask('/tool add {"a": 2, "b": 3}'))
    assert json.loads(outcome.summary) == {"sum": 5}
    assert outcome.parts[1]["data"] == {"sum": 5}


def test_a_huge_result_is_cut_in_the_text_and_whole_in_an_artifact(bench: Bench) -> None:
    text = "模块 line\n" * 20_000
    bench.tools = [tool("big", lambda a, c: text), tool("vast", lambda a, c: "x" * 5_000_000)]
    outcome = completed(bench.ask("/tool big"))
    assert len(outcome.summary) < MAX_SUMMARY + 200
    assert "artifact big.txt" in outcome.summary
    (artifact,) = bench.of(ArtifactEvent)
    assert (artifact.text, artifact.size, artifact.truncated) == (text, len(text.encode()), False)
    (result,) = bench.of(ToolResultEvent)
    assert len(json.dumps(result.data())) < 20_000
    completed(bench.ask("/tool vast"))
    assert bench.of(ArtifactEvent)[0].truncated
    assert sum(len(json.dumps(e.data())) for e in bench.events) < 1_000_000


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (float("nan"), "invalid_result"),
        ({"a": float("inf")}, "invalid_result"),
        (10**1000, "invalid_result"),
        (["x"] * 300_000, "invalid_result"),
    ],
)
def test_a_result_that_is_no_json_is_a_failed_call(bench: Bench, value: Any, code: str) -> None:
    bench.tools = [tool("odd", lambda a, c: value)]
    assert failed(bench.ask("/tool odd")).code == code


def test_a_result_that_contains_itself_is_a_failed_call(bench: Bench) -> None:
    loop: list[Any] = []
    loop.append(loop)
    bench.tools = [tool("odd", lambda a, c: loop)]
    assert failed(bench.ask("/tool odd")).code == "invalid_result"


def test_what_cannot_be_stored_is_replaced_everywhere(bench: Bench) -> None:
    bench.tools = [tool("odd", lambda a, c: {"te\0xt": "a\0b\ud800c", "text": "x\0y\udfff"})]
    outcome = completed(bench.ask("/tool odd"))
    told = json.dumps([e.data() for e in bench.events] + [list(outcome.parts), outcome.summary], ensure_ascii=False)
    told.encode()
    assert "\\u0000" not in told
    assert "x\N{REPLACEMENT CHARACTER}y" in outcome.summary


def test_an_exception_in_a_tool_is_a_failed_step_whose_text_stays_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(arguments: Any, context: ToolContext) -> Any:
        raise RuntimeError("password=hunter2")

    bench.tools = [tool("broken", broken)]
    outcome = failed(bench.ask("/tool broken"))
    assert outcome.code == "tool_failed"
    assert "hunter2" not in outcome.message + str([e.data() for e in bench.events])
    assert "hunter2" in caplog.text


def test_a_tools_own_error_is_told(bench: Bench) -> None:
    def refusing(arguments: Any, context: ToolContext) -> Any:
        raise ToolError("quota", "come back tomorrow")

    bench.tools = [tool("refusing", refusing)]
    assert bench.ask("/tool refusing") == Failed("quota", "come back tomorrow")


def test_a_workers_soft_limit_gets_through_a_tool(bench: Bench) -> None:
    class SoftLimit(Exception):
        pass

    def slow(arguments: Any, context: ToolContext) -> Any:
        raise SoftLimit

    bench.tools = [tool("slow", slow)]
    with pytest.raises(SoftLimit):
        bench.ask("/tool slow", reraise=(SoftLimit,))
    assert set(bench.last_statuses().values()) == {"failed"}


def test_cancel_before_the_start_calls_nothing(bench: Bench) -> None:
    with pytest.raises(Cancelled):
        bench.ask("请分析本地项目", cancelled=lambda: True)
    assert bench.of(ToolCallEvent) == []
    assert set(bench.last_statuses().values()) == {"cancelled"}


def test_cancel_in_the_middle_ends_at_the_next_step_and_leaves_no_goal_open(bench: Bench) -> None:
    def cancelled() -> bool:
        return len(bench.of(ToolResultEvent)) >= 3

    with pytest.raises(Cancelled):
        bench.ask("请分析本地项目", cancelled=cancelled)
    assert len(bench.of(ToolCallEvent)) == 3
    counts = Counter(bench.last_statuses().values())
    assert set(counts) == {"done", "cancelled"}


def test_cancel_inside_a_tool_ends_the_run(bench: Bench) -> None:
    asked: list[bool] = []

    def cancelled() -> bool:
        asked.append(True)
        return len(asked) > 1  # the engine's own look is the first

    with pytest.raises(Cancelled):
        bench.ask("有循环依赖吗", cancelled=cancelled)
    assert bench.of(ToolResultEvent) == []


def test_a_deadline_that_has_passed_fails_with_timeout(bench: Bench) -> None:
    outcome = failed(bench.ask("请分析本地项目", deadline=time.monotonic() - 1))
    assert outcome == Failed("timeout", "超过了时间限制")
    assert set(bench.last_statuses().values()) == {"failed"}


def test_what_was_done_before_the_deadline_is_not_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    class Time:
        @staticmethod
        def monotonic() -> float:
            return time.monotonic() + (7200 if bench.of(ToolResultEvent) else 0)

    monkeypatch.setattr(engine, "time", Time)
    outcome = completed(bench.ask("读取 README.md，读取 manage.py", deadline=time.monotonic() + 3600))
    assert "# The shop" in outcome.summary
    assert outcome.summary.endswith("其中一部分没有完成：超过了时间限制")
    assert len(bench.of(ToolCallEvent)) == 1
    assert "open" not in bench.last_statuses().values()


def test_a_lost_lease_stops_the_run_at_once(bench: Bench) -> None:
    class LeaseLost(Exception):
        pass

    seen: list[Event] = []

    def losing(event: Event) -> None:
        seen.append(event)
        if isinstance(event, ToolResultEvent):
            raise LeaseLost

    with pytest.raises(LeaseLost):
        bench.ask("请分析本地项目", on_event=losing)
    assert sum(isinstance(e, ToolCallEvent) for e in seen) == 1


def test_a_run_makes_a_bounded_number_of_calls(bench: Bench) -> None:
    text = "；".join("分析 " + "、".join(f"m{a}{b}" for b in "abcdefghijkl") + " 模块" for a in "abcdefgh")
    outcome = failed(bench.ask(text))
    assert len(bench.of(ToolCallEvent)) <= 60
    assert "步骤太多" in outcome.message


def test_the_parts_hold_the_text_and_the_facts(bench: Bench) -> None:
    outcome = completed(bench.ask("分析 core 模块"))
    assert outcome.parts[0] == {"text": outcome.summary}
    assert outcome.parts[1]["mediaType"] == "application/json"
    (fact,) = outcome.parts[1]["data"]
    assert (fact["module"], fact["shape"]) == ("core", "roles")
