"""The workspace as tools: what the planner, a model and `/tool` call. Read-only, confined, bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from traces_app.tools import Arguments, Registry, Tool, ToolContext, ToolError, tool
from traces_app.workspace import report
from traces_app.workspace.architecture import find_architecture
from traces_app.workspace.errors import NotFound, WorkspaceError
from traces_app.workspace.files import list_directory, read_file, search_files
from traces_app.workspace.project import Part, Project
from traces_app.workspace.python_project import scan

SCAN_SECONDS = 60.0
SEARCH_SECONDS = 20.0
FILE_SECONDS = 10.0
_PATH = {"type": "string", "description": "Relative to an allowed directory, with /.", "maxLength": 4096}
_MANY = 50


def _parameters(required: tuple[str, ...] = (), **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


@contextmanager
def _told() -> Iterator[None]:
    """A workspace's error as a tool's, with the same code."""
    try:
        yield
    except NotFound as error:
        near = f" ({', '.join(error.near[:5])}?)" if error.near else ""
        raise ToolError(error.code, f"{error}{near}") from error
    except WorkspaceError as error:
        raise ToolError(error.code, str(error)) from error


@tool("list_directory", "Names in a directory, without caches and environments.", _parameters(path=_PATH))
def list_directory_tool(arguments: Arguments, context: ToolContext) -> Any:
    with _told():
        found = list_directory(context.roots, arguments.get("path", "."), context.budget(FILE_SECONDS))
    return {
        "path": found.path,
        "entries": [{"name": e.name, "kind": e.kind, "size": e.size} for e in found.entries],
        "truncated": found.truncated,
        "text": report.listing(found, context.language),
    }


@tool(
    "read_file",
    "The text of a file, or the lines first_line to last_line (from 1) of it.",
    _parameters(
        ("path",),
        path=_PATH,
        first_line={"type": "integer", "minimum": 1},
        last_line={"type": "integer", "minimum": 1},
    ),
)
def read_file_tool(arguments: Arguments, context: ToolContext) -> Any:
    with _told():
        found = read_file(
            context.roots,
            arguments["path"],
            context.budget(FILE_SECONDS),
            int(arguments.get("first_line", 1)),
            int(arguments["last_line"]) if "last_line" in arguments else None,
        )
    return {
        "path": found.path,
        "first_line": found.first_line,
        "last_line": found.last_line,
        "total_lines": found.total_lines,
        "size": found.size,
        "text": report.file_text(found, context.language, limit=12_000),
    }


@tool(
    "search_files",
    "Lines that contain a text (or match a regular expression, in linear time) below a directory or in a file.",
    _parameters(
        ("query",),
        query={"type": "string", "minLength": 1, "maxLength": 1000},
        path=_PATH,
        regex={"type": "boolean"},
        ignore_case={"type": "boolean"},
        glob={"type": "string", "maxLength": 200, "description": "File names to look into, such as *.py."},
        max_matches={"type": "integer", "minimum": 1, "maximum": 500},
    ),
)
def search_files_tool(arguments: Arguments, context: ToolContext) -> Any:
    with _told():
        found = search_files(
            context.roots,
            arguments["query"],
            arguments.get("path", "."),
            context.budget(SEARCH_SECONDS),
            regex=arguments.get("regex", False),
            ignore_case=arguments.get("ignore_case", False),
            glob=arguments.get("glob", ""),
            max_matches=int(arguments.get("max_matches", 100)),
        )
    return {
        "matches": [{"path": m.path, "line": m.line, "text": m.text} for m in found.matches[:_MANY]],
        "count": len(found.matches),
        "files_searched": found.files_searched,
        "stopped": found.stopped,
        "text": report.matches(found, context.language),
    }


@tool(
    "scan_project",
    "A project's modules, sizes, entry points, dependencies and import cycles, from its syntax alone.",
    _parameters(path=_PATH),
)
def scan_project_tool(arguments: Arguments, context: ToolContext) -> Any:
    project = scanned(arguments.get("path", "."), context)
    return {
        "name": project.name,
        "path": project.path,
        "modules": [
            {"name": p.name, "path": project.at(p.path), "files": len(p.modules), "lines": p.lines}
            for p in project.parts[:_MANY]
        ],
        "module_count": len(project.parts),
        "folders": [f.name for f in project.folders[:_MANY]],
        "files": project.files,
        "cycles": len(project.cycles),
        "problems": len(project.problems),
        "truncated": project.truncated,
        "text": report.overview(project, context.language),
        "question": report.question(project, context.language),
    }


@tool(
    "module_report",
    "What one module or package is built like: architecture with evidence, key classes, imports, importers, cycles.",
    _parameters(
        ("module",),
        module={"type": "string", "minLength": 1, "maxLength": 300, "description": "Name, dotted name or path."},
        path=_PATH,
        detail={"type": "string", "enum": ["summary", "full"]},
    ),
)
def module_report_tool(arguments: Arguments, context: ToolContext) -> Any:
    project = scanned(arguments.get("path", "."), context)
    part = _find(project, arguments["module"], context)
    full = arguments.get("detail") == "full"
    language = context.language
    return {
        "name": part.name,
        "module": part.dotted,
        "path": project.at(part.path),
        "files": len(part.modules),
        "lines": part.lines,
        "shape": find_architecture(project, part).shape,
        "text": report.details(project, part, language) if full else report.facts(project, part, language),
        "architecture": report.architecture(project, part, language),
        "offer": "" if full else report.offer(project, part, language),
    }


@tool(
    "project_facts",
    "One thing about a project: its import cycles, third-party dependencies, entry points, tests or unparsable files.",
    _parameters(
        ("topic",),
        topic={"type": "string", "enum": ["cycles", "dependencies", "entry_points", "tests", "problems"]},
        path=_PATH,
    ),
)
def project_facts_tool(arguments: Arguments, context: ToolContext) -> Any:
    project = scanned(arguments.get("path", "."), context)
    topics = {
        "cycles": report.cycles,
        "dependencies": report.dependencies,
        "entry_points": report.entry_points,
        "tests": report.tests,
        "problems": report.problems,
    }
    return {"topic": arguments["topic"], "text": topics[arguments["topic"]](project, context.language)}


def scanned(path: str, context: ToolContext) -> Project:
    """The scan of `path`, made once in a run. Raises ToolError."""
    key = ("scan", path)
    project = context.memo.get(key)
    if not isinstance(project, Project):
        with _told():
            project = scan(context.roots, path, context.budget(SCAN_SECONDS))
        context.memo[key] = project
    return project


def _find(project: Project, asked: str, context: ToolContext) -> Part:
    try:
        return project.find(asked)
    except NotFound as error:
        raise ToolError(error.code, report.not_found(error, asked, project, context.language)) from error


WORKSPACE_TOOLS: tuple[Tool, ...] = (
    list_directory_tool,
    read_file_tool,
    search_files_tool,
    scan_project_tool,
    module_report_tool,
    project_facts_tool,
)


def workspace_registry() -> Registry:
    return Registry(WORKSPACE_TOOLS)
