from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workspace.trees import SHOP, plant
from traces_app.tools import Registry, Tool, ToolContext, ToolError, check, tool
from traces_app.workspace.roots import Roots
from traces_app.workspace.tools import workspace_registry

TWO_NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


@tool("add", "Adds two numbers.", TWO_NUMBERS)
def add(arguments: Any, context: ToolContext) -> Any:
    return {"sum": arguments["a"] + arguments["b"]}


def call(root: Path, name: str, /, **arguments: Any) -> Any:
    return workspace_registry().get(name).call(arguments, ToolContext(roots=Roots([root])))


def test_a_decorated_function_is_a_tool_that_checks_its_arguments() -> None:
    assert isinstance(add, Tool)
    assert add.call({"a": 1, "b": 2}, ToolContext()) == {"sum": 3}
    for wrong in ({}, {"a": 1}, {"a": "1", "b": 2}, {"a": True, "b": 2}, {"a": 1.5, "b": 2}):
        with pytest.raises(ToolError) as refused:
            add.call(wrong, ToolContext())
        assert refused.value.code == "invalid"


def test_a_registry_refuses_a_second_tool_of_the_same_name() -> None:
    registry = Registry([add])
    with pytest.raises(ValueError, match="already"):
        registry.add(add)
    registry.add(add, replace=True)
    assert registry.names == ("add",)
    with pytest.raises(ToolError) as unknown:
        registry.get("nope")
    assert (unknown.value.code, "add" in unknown.value.message) == ("unknown_tool", True)


@pytest.mark.parametrize("name", ["", "a b", "1x", "x" * 200, "a\n"])
def test_a_tool_needs_a_name_that_can_be_written_in_a_message(name: str) -> None:
    with pytest.raises(ValueError, match="tool name"):
        Tool(name, "", {}, lambda arguments, context: None)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "maxLength": 2}, "ab", "abc"),
        ({"type": ["string", "null"]}, None, 1),
        ({"enum": ["a", "b"]}, "a", "c"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, 3, 4),
        ({"type": "number"}, 1.5, True),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [1, 2], [1, "x"]),
        ({"type": "array", "maxItems": 2}, [1], [1, 2, 3]),
        ({"type": "object", "properties": {"a": {"type": "object", "required": ["b"]}}}, {"a": {"b": 1}}, {"a": {}}),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {}, {"x": 1}),
    ],
)
def test_the_schema_is_held(schema: dict[str, Any], good: Any, bad: Any) -> None:
    check(schema, good)
    with pytest.raises(ToolError):
        check(schema, bad)


def test_each_workspace_tool_answers_with_json_and_a_text(tmp_path: Path) -> None:
    root = plant(tmp_path / "shop", SHOP)
    calls: dict[str, dict[str, Any]] = {
        "list_directory": {},
        "read_file": {"path": "core/models.py", "first_line": 1, "last_line": 1},
        "search_files": {"query": "class", "glob": "*.py"},
        "scan_project": {},
        "module_report": {"module": "core"},
        "project_facts": {"topic": "cycles"},
    }
    assert set(calls) == set(workspace_registry().names)
    for name, arguments in calls.items():
        result = call(root, name, **arguments)
        assert json.loads(json.dumps(result)) == result
        assert isinstance(result["text"], str)
    assert call(root, "read_file", path="core/models.py", last_line=1)["text"].endswith("class Item:")
    assert call(root, "module_report", module="core")["shape"] == "roles"
    assert call(root, "module_report", module="core", detail="full")["offer"] == ""


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("read_file", {"path": "../secret"}, "outside_roots"),
        ("read_file", {"path": "nowhere"}, "not_found"),
        ("read_file", {"path": "core"}, "wrong_kind"),
        ("read_file", {}, "invalid"),
        ("read_file", {"path": "README.md", "first_line": 0}, "invalid"),
        ("read_file", {"path": "README.md", "mode": "w"}, "invalid"),
        ("list_directory", {"path": "/etc"}, "outside_roots"),
        ("search_files", {"query": "(", "regex": True}, "invalid_pattern"),
        ("scan_project", {"path": "C:\\"}, "outside_roots"),
        ("module_report", {"module": "nope"}, "not_found"),
        ("project_facts", {"topic": "weather"}, "invalid"),
    ],
)
def test_errors_have_the_workspaces_codes(tmp_path: Path, name: str, arguments: dict[str, Any], code: str) -> None:
    root = plant(tmp_path / "shop", SHOP)
    with pytest.raises(ToolError) as error:
        call(root, name, **arguments)
    assert error.value.code == code


def test_tools_keep_to_the_deadline_and_the_cancel_flag_of_the_run(tmp_path: Path) -> None:
    roots = Roots([plant(tmp_path / "shop", SHOP)])
    scan = workspace_registry().get("scan_project")
    with pytest.raises(ToolError) as late:
        scan.call({}, ToolContext(roots=roots, deadline=time.monotonic() - 1))
    assert late.value.code == "timeout"
    with pytest.raises(ToolError) as cancelled:
        scan.call({}, ToolContext(roots=roots, cancelled=lambda: True))
    assert cancelled.value.code == "cancelled"


def test_a_run_scans_once(tmp_path: Path) -> None:
    root = plant(tmp_path / "shop", SHOP)
    context = ToolContext(roots=Roots([root]))
    registry = workspace_registry()
    registry.get("scan_project").call({}, context)
    (root / "core" / "new.py").write_text("")
    assert registry.get("module_report").call({"module": "core"}, context)["files"] == 4
    assert registry.get("module_report").call({"module": "core"}, ToolContext(roots=Roots([root])))["files"] == 5
