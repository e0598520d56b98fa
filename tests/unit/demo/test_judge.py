"""What the demo says of the conversation that it has watched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hub.demo.lines import SCRIPTS
from hub.demo.stage import DemoFailed, Heard, judge

REPORTS = {
    "en": (
        "I see 1 module: core; shall I look at it?",
        "core is at core/models.py:1; shall I explain it in detail?",
    ),
    "zh": ("我看到有1个模块：core，你想重点分析哪个？", "core模块在 core/models.py:1，需要我详细说明吗？"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "models.py").write_text("class Order:\n    pass\n")
    return tmp_path


def heard(language: str, *, goals: int, tool_calls: int) -> Heard:
    script = SCRIPTS[language]
    which, offer = REPORTS[language]
    said: list[tuple[str, str, dict[str, Any]]] = [
        ("cloud-agent-123", script.opening, {}),
        ("terminal-agent-456", which, {}),
        ("cloud-agent-123", script.choice.format(module="core"), {}),
        ("terminal-agent-456", offer, {}),
        ("cloud-agent-123", script.accepts.format(module="core"), {"trace_id": "trace-1"}),
        ("terminal-agent-456", "core:\n- Order (core/models.py:1)", {"kind": "result"}),
        ("cloud-agent-123", script.goodbye, {}),
    ]
    watched = Heard(ended="completed")
    watched.messages = [
        {"sequence": n, "from": sender, "content": content, "kind": "chat", "trace_id": None, **more}
        for n, (sender, content, more) in enumerate(said, 1)
    ]
    watched.goals = {str(n): "done" for n in range(goals)}
    watched.tool_calls = tool_calls
    return watched


@pytest.mark.parametrize("language", ["en", "zh"])
def test_one_goal_is_not_called_goals(root: Path, language: str) -> None:
    good = judge(heard(language, goals=1, tool_calls=2), root, language)
    assert good[0].startswith("1 module named")
    assert good[-1].endswith("1 goal, 2 tool calls, one result")
    assert judge(heard(language, goals=3, tool_calls=1), root, language)[-1].endswith(
        "3 goals, 1 tool call, one result"
    )


def test_a_trace_without_goals_is_missed(root: Path) -> None:
    with pytest.raises(DemoFailed, match="no goals"):
        judge(heard("en", goals=0, tool_calls=1), root, "en")
