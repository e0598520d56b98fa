"""What is known about a project, said in Chinese or English. Every fact has its place as `path:line`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from traces_app.workspace.architecture import Architecture, PartFacts, describe
from traces_app.workspace.files import FileText, Listing, SearchResult
from traces_app.workspace.project import Edge, Part, Project

MANY = 12


class Speech(ABC):
    """One language."""

    comma = ", "
    shapes: dict[str, str]
    labels: dict[str, str]

    # --- what a conversation is made of ---

    @abstractmethod
    def overview(self, project: Project) -> str:
        """What there is, and the question which part to look at."""

    @abstractmethod
    def report(self, project: Project, part: Part) -> str:
        """What a part is, and the question whether to go on."""

    @abstractmethod
    def unknown(self, problem: str, near: tuple[str, ...]) -> str: ...

    @abstractmethod
    def help(self, project: Project) -> str: ...

    def problem(self, text: str) -> str:
        return f"{self.labels['problem']}{text}"

    # --- the same in both ---

    def names(self, project: Project) -> str:
        shown = [part.name for part in project.parts[:MANY]]
        return self.comma.join(shown) + (" …" if len(project.parts) > MANY else "")

    def facts(self, facts: PartFacts) -> list[str]:
        say = self.labels
        lines = []
        if facts.doc:
            lines.append(f"{say['doc']}{_first_line(facts.doc)}")
        lines.append(
            say["size"].format(
                files=facts.files, lines=facts.part.lines, classes=facts.classes, functions=facts.functions
            )
        )
        if len(facts.units) > 1:
            units = self.comma.join(f"{_short(name, facts.part)} ({count})" for name, count in facts.units[:MANY])
            lines.append(f"{say['units']}{units}")
        if facts.used_by:
            lines.append(f"{say['used_by']}{self.comma.join(f'{use.name} ({use.where})' for use in facts.used_by[:6])}")
        if facts.uses:
            lines.append(f"{say['uses']}{self.comma.join(f'{use.name} ({use.where})' for use in facts.uses[:6])}")
        return lines

    def details(self, project: Project, part: Part) -> str:
        """Architecture with its evidence, key components with their places, dependencies, cycles, tests."""
        facts, say = describe(project, part), self.labels
        lines = [f"{say['details'].format(name=part.name)}", f"{say['architecture']}{self.shape(facts.architecture)}"]
        lines += [f"  - {line}" for line in _evidence(project, facts.architecture)]
        lines += self.facts(facts)
        if facts.key_classes:
            lines.append(say["classes"])
        for cls in facts.key_classes:
            methods = self.comma.join(method.name for method in cls.methods[:6]) + (
                " …" if len(cls.methods) > 6 else ""
            )
            bases = f"({', '.join(cls.bases)})" if cls.bases else ""
            doc = f" — {_first_line(cls.doc)}" if cls.doc else ""
            lines.append(f"  - {cls.name}{bases} {cls.where}{doc}" + (f" [{methods}]" if methods else ""))
        if facts.key_functions:
            lines.append(say["functions"])
            lines += [f"  - {name} {where}" for name, where in facts.key_functions]
        if facts.external:
            lines.append(f"{say['external']}{self.comma.join(name for name, _ in facts.external[:MANY])}")
        for circle in facts.cycles[:3]:
            lines.append(f"{say['cycle']}{_path(circle)} ({project.where(circle[0].source, circle[0].line)})")
        if facts.tested_by:
            tests = self.comma.join(use.name for use in facts.tested_by[:4])
            lines.append(say["tests"].format(count=len(facts.tested_by), names=tests))
        if facts.problems:
            lines.append(f"{say['problems']}{self.comma.join(facts.problems[:6])}")
        return "\n".join(lines)

    def shape(self, architecture: Architecture) -> str:
        text = self.shapes[architecture.shape]
        if architecture.shape in ("roles", "layers", "two_levels"):
            levels = (", ".join(group[:6]) + (" …" if len(group) > 6 else "") for group in architecture.groups)
            return text + ": " + " → ".join(levels)
        if architecture.shape in ("family", "star") and len(architecture.groups) == 2:
            (one,), others = architecture.groups
            return f"{text}: {one} ← {', '.join(others[:8])}" + (" …" if len(others) > 8 else "")
        return text

    def file(self, found: FileText) -> str:
        cut = found.truncated or found.last_line < found.total_lines
        head = f"{found.path} ({found.first_line}-{found.last_line}/{found.total_lines}" + (" …)" if cut else ")")
        return f"{head}\n{found.text}"

    def search(self, found: SearchResult) -> str:
        head = self.labels["found"].format(count=len(found.matches), query=found.query, files=found.files_searched)
        stopped = " …" if found.stopped else ""
        return "\n".join(
            [head + stopped, *(f"{hit.path}:{hit.line}: {hit.text.strip()[:160]}" for hit in found.matches[:40])]
        )

    def listing(self, found: Listing) -> str:
        rows = [entry.name + ("/" if entry.kind == "directory" else "") for entry in found.entries[:200]]
        return f"{found.path}: " + self.comma.join(rows) + (" …" if found.truncated or len(found.entries) > 200 else "")


class Chinese(Speech):
    comma = "、"
    shapes = {
        "roles": "按职责分层",
        "layers": "分层",
        "two_levels": "两层",
        "tangled": "相互依赖（循环导入）的",
        "family": "基类加多个实现的",
        "star": "以一个模块为中心的星形",
        "flat": "相互独立的平铺",
        "single": "单模块",
        "none": "没有明显形状的",
    }
    labels = {
        "problem": "做不到：",
        "doc": "说明：",
        "size": "规模：{files}个文件，{lines}行，{classes}个类，{functions}个函数",
        "units": "组成（行数）：",
        "used_by": "被使用：",
        "uses": "依赖：",
        "details": "详细架构（{name}）：",
        "architecture": "架构：",
        "classes": "关键组件：",
        "functions": "主要函数：",
        "external": "第三方库：",
        "cycle": "循环导入：",
        "tests": "测试：{count}个测试模块用到它（{names}）",
        "problems": "无法解析：",
        "found": "在{files}个文件中找到{count}处“{query}”",
    }

    def overview(self, project: Project) -> str:
        if not project.parts:
            return f"我看到{project.files}个文件，但没有Python模块。我可以列出、读取或搜索文件。"
        return f"我看到有{len(project.parts)}个模块：{', '.join(p.name for p in project.parts)}，你想重点分析哪个模块？"

    def report(self, project: Project, part: Part) -> str:
        facts = describe(project, part)
        head = f"{part.name}模块使用了{self.shapes[facts.architecture.shape]}架构。"
        return "\n".join([head, *self.facts(facts), "需要我详细说明吗？"])

    def unknown(self, problem: str, near: tuple[str, ...]) -> str:
        return "没有找到这个模块。" + (f"有这些：{self.comma.join(near)}。" if near else "")

    def help(self, project: Project) -> str:
        return (
            "我了解这个项目：可以介绍它的模块（“分析项目”）、某个模块（“分析X模块”，然后“详细说明”），"
            f"也可以读取、列出或搜索文件。现有模块：{self.names(project)}。"
        )


class English(Speech):
    shapes = {
        "roles": "layered by role",
        "layers": "layered",
        "two_levels": "two-level",
        "tangled": "tangled (its parts import one another in a circle)",
        "family": "one base with several implementations",
        "star": "star-shaped, around one module",
        "flat": "flat, with independent parts",
        "single": "single-module",
        "none": "no particular",
    }
    labels = {
        "problem": "I cannot: ",
        "doc": "What it says of itself: ",
        "size": "Size: {files} files, {lines} lines, {classes} classes, {functions} functions",
        "units": "Made of (lines): ",
        "used_by": "Used by: ",
        "uses": "Uses: ",
        "details": "Details of {name}:",
        "architecture": "Architecture: ",
        "classes": "Key components:",
        "functions": "Main functions:",
        "external": "Third-party: ",
        "cycle": "Import cycle: ",
        "tests": "Tests: {count} test modules use it ({names})",
        "problems": "Cannot be parsed: ",
        "found": "“{query}” in {count} places, {files} files searched",
    }

    def overview(self, project: Project) -> str:
        if not project.parts:
            return f"I see {project.files} files, but no Python modules. I can list, read or search files."
        names = ", ".join(part.name for part in project.parts)
        return f"I see {len(project.parts)} modules: {names}. Which module should I focus on?"

    def report(self, project: Project, part: Part) -> str:
        facts = describe(project, part)
        head = f"The {part.name} module has this architecture: {self.shapes[facts.architecture.shape]}."
        return "\n".join([head, *self.facts(facts), "Shall I go into detail?"])

    def unknown(self, problem: str, near: tuple[str, ...]) -> str:
        return "I find no such module." + (f" There are: {self.comma.join(near)}." if near else "")

    def help(self, project: Project) -> str:
        return (
            'I know this project: ask for an overview ("analyse the project"), for a module ("analyse the X module", then '
            f'"details"), or to read, list or search files. Modules: {self.names(project)}.'
        )


CHINESE = Chinese()
ENGLISH = English()


def _evidence(project: Project, architecture: Architecture) -> list[str]:
    if architecture.evidence_lines:
        return [f"{name} {where}" for name, where in architecture.evidence_lines[:8]]
    return [
        f"{edge.source} → {edge.target} ({project.where(edge.source, edge.line)})" for edge in architecture.evidence[:8]
    ]


def _path(circle: Iterable[Edge]) -> str:
    edges = list(circle)
    return " → ".join([edge.source for edge in edges] + [edges[0].source])


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:200]


def _short(name: str, part: Part) -> str:
    return name.removeprefix(part.dotted + ".") if name != part.dotted else "__init__"
