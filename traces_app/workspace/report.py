"""Facts of a scan as text, in Chinese or English: every statement with where it can be checked, bounded in length."""

from __future__ import annotations

from collections.abc import Iterable

from traces_app.workspace.architecture import Architecture, PartFacts, Use, circle_edges, describe
from traces_app.workspace.errors import NotFound
from traces_app.workspace.files import FileText, Listing, SearchResult
from traces_app.workspace.project import PROSE_AND_DATA, Edge, Part, Project
from traces_app.workspace.words import Language, enumerate_items, say

MAX_CHARACTERS = 6000
_MAX_NAMES = 12


def overview(project: Project, language: Language, limit: int = MAX_CHARACTERS) -> str:
    """The project in ten to forty lines, without a question."""
    return fit([*_head(project, language), *_parts(project, language), *_rest(project, language)], language, limit)


def question(project: Project, language: Language) -> str:
    """Which module to focus on: `我看到有3个模块：a, b, c，你想重点分析哪个？`."""
    key, names = "which_module", [part.name for part in project.parts]
    if not names:
        key, names = "which_folder", [folder.name for folder in project.folders]
    if not names:
        return say(language, "nothing")
    if len(names) == 1 and project.parts:
        return say(language, "one_module", names=names[0])
    if len(names) > _MAX_NAMES:
        key += "_of_many"
    return say(language, key, count=len(names), names=", ".join(names[:_MAX_NAMES]))


def cycles(project: Project, language: Language, limit: int = MAX_CHARACTERS) -> str:
    if not project.cycles:
        return say(language, "no_cycles")
    lines = [say(language, "cycles", count=len(project.cycles), size=len(project.cycles[0]))]
    for component in project.cycles[:10]:
        circle = circle_edges(project, component)
        lines.append(say(language, "cycle", size=len(component), circle=_circle(project, circle, language)))
    return fit(lines, language, limit)


def dependencies(project: Project, language: Language) -> str:
    if not project.external:
        return say(language, "no_dependencies")
    ranked = sorted(project.external.items(), key=lambda item: (-len(item[1]), item[0]))
    items = [say(language, "dependency", name=name, count=len(users)) for name, users in ranked]
    return say(language, "dependencies", items=enumerate_items(language, items, 30))


def entry_points(project: Project, language: Language) -> str:
    items = []
    for entry in project.entry_points:
        where = project.at(entry.path, entry.line)
        if entry.what in ("main", "package"):
            items.append(say(language, "entry_main", where=where))
        else:
            items.append(say(language, "entry_script", name=entry.what, where=where))
    if not items:
        return say(language, "no_entry_points")
    return say(language, "entry_points", items=enumerate_items(language, items, 12))


def tests(project: Project, language: Language) -> str:
    files = project.tests
    if not files:
        return say(language, "no_tests")
    return say(language, "tests", files=len(files), tests=sum(m.source.tests for m in files))


def problems(project: Project, language: Language) -> str:
    if not project.problems:
        return say(language, "no_problems")
    items = [say(language, "problem", where=project.at(p.path, p.line), message=p.message) for p in project.problems]
    return say(language, "problems", count=len(items), items=enumerate_items(language, items, 10))


def facts(project: Project, part: Part, language: Language) -> str:
    """Size, imports and importers of one part."""
    found = describe(project, part)
    return "\n".join([_size(found, language), _uses(found, language), _used_by(found, language)])


def architecture(project: Project, part: Part, language: Language) -> str:
    """One sentence, which claims no more than the imports show."""
    style, why = shape(describe(project, part), language)
    return say(language, "built" if style else "built_none", name=part.name, style=style, why=why)


def offer(project: Project, part: Part, language: Language) -> str:
    """`core模块使用了…架构，需要我详细说明吗？`"""
    style, why = shape(describe(project, part), language)
    return say(language, "offer" if style else "offer_none", name=part.name, style=style, why=why)


def summary(project: Project, part: Part, language: Language) -> str:
    """A few lines about one part, ending in the offer of details."""
    return f"{facts(project, part, language)}\n{offer(project, part, language)}"


def details(project: Project, part: Part, language: Language, limit: int = MAX_CHARACTERS) -> str:
    """`详细架构：` and everything that is known about one part."""
    found = describe(project, part)
    style, why = shape(found, language, names=12)
    lines = [
        say(language, "details"),
        say(language, "built" if style else "built_none", name=part.name, style=style, why=why),
        *_evidence(project, found.architecture, language),
        _size(found, language),
    ]
    if len(found.units) > 1:
        units = [say(language, "unit", name=_short(found, name), lines=size) for name, size in found.units]
        lines.append(say(language, "units", items=enumerate_items(language, units, 15)))
    lines += _classes(found, language)
    for key, pairs in (("key_functions", found.key_functions), ("defines", found.defines)):
        if pairs:
            items = [say(language, "at", what=name, where=where) for name, where in pairs]
            lines.append(say(language, key, items=enumerate_items(language, items, 10)))
    lines += [_uses(found, language), _used_by(found, language)]
    if found.external:
        items = [say(language, "dependency", name=name, count=count) for name, count in found.external]
        lines.append(say(language, "external", items=enumerate_items(language, items, 10)))
    if found.cycles:
        lines.append(say(language, "part_cycles"))
        lines += ["- " + _circle(project, circle, language) for circle in found.cycles[:5]]
    else:
        lines.append(say(language, "part_no_cycles"))
    for key, texts in (("part_entry_points", found.entry_points), ("part_problems", found.problems)):
        if texts:
            lines.append(say(language, key, items=enumerate_items(language, texts, 8)))
    if found.tested_by:
        lines.append(say(language, "tested_by", items=_use_items(found.tested_by, language, 6)))
    return fit(lines, language, limit)


def not_found(error: NotFound, asked: str, project: Project, language: Language) -> str:
    """What to say where `Project.find` raised: the modules it could have been, or all of them."""
    if error.near and "more than one" in str(error):
        return say(language, "several_modules", asked=asked, names=", ".join(error.near))
    said = [say(language, "no_module", asked=asked), question(project, language)]
    return ("" if language == "zh" else " ").join(said)


def shape(facts: PartFacts, language: Language, names: int = 5) -> tuple[str, str]:
    """(`单向分层`, `（3 层：…）`): what goes before 架构 or "architecture", empty where no claim can be made, and why."""
    found = facts.architecture.shape
    groups = facts.architecture.groups
    if found == "none":
        key = "none_why" if facts.unit_count > 1 else "none_alone_why"
        return "", say(language, key, count=facts.unit_count, edges=facts.unit_edges)
    style = say(language, found)
    if found == "single":
        return style, ""
    why = f"{found}_why"
    if found in ("roles", "layers", "two_levels"):
        levels = [enumerate_items(language, group, names) for group in groups[:8]] + ["…"] * (len(groups) > 8)
        return style, say(language, why, count=len(groups), items=say(language, "down").join(levels))
    if found == "family":
        return style, say(language, why, base=groups[0][0], items=enumerate_items(language, groups[1], names))
    if found == "star":
        return style, say(language, why, centre=groups[0][0], count=len(groups[1]))
    return style, say(language, why, count=len(groups[0]), items=enumerate_items(language, groups[0], names))


def listing(found: Listing, language: Language, limit: int = MAX_CHARACTERS) -> str:
    key = "listing_cut" if found.truncated else "listing"
    lines = [say(language, key, path=found.path, count=len(found.entries))]
    for entry in found.entries:
        suffix = {"directory": "/", "link": "@", "other": "", "file": f"  {entry.size} B"}[entry.kind]
        lines.append(f"- {entry.name}{suffix}")
    if found.hidden:
        lines.append(say(language, "listing_hidden", count=found.hidden))
    return fit(lines, language, limit)


def file_text(found: FileText, language: Language, limit: int = MAX_CHARACTERS) -> str:
    """The text of a file under a line that says which lines these are; cut at whole lines to fit."""
    if found.last_line < found.first_line:
        return say(language, "file_empty", path=found.path, total=found.total_lines)
    text, last, cut = found.text, found.last_line, found.truncated
    if len(text) > limit:
        kept = text[:limit].rpartition("\n")[0] or text[:limit]
        text, last, cut = kept, found.first_line + kept.count("\n"), True
    head = say(language, "file", path=found.path, first=found.first_line, last=last, total=found.total_lines)
    notes = [say(language, "file_cut", last=last)] if cut else []
    if found.replaced:
        notes.append(say(language, "file_replaced"))
    return "\n".join([head, text, *notes])


def matches(found: SearchResult, language: Language, limit: int = MAX_CHARACTERS) -> str:
    notes = []
    if found.stopped:
        notes.append(say(language, f"stopped_{found.stopped}", count=len(found.matches)))
    if not found.matches:
        head = say(language, "found_nothing", query=found.query, files=found.files_searched)
        return "\n".join([head, *notes])
    head = say(language, "found", query=found.query, count=len(found.matches), files=found.files_searched)
    lines = [f"{match.path}:{match.line}: {match.text}" for match in found.matches]
    return fit([head, *notes, *lines], language, limit)


def fit(lines: list[str], language: Language, limit: int) -> str:
    """Whole lines up to `limit` characters, and how many were left out."""
    size = 0
    for index, line in enumerate(lines):
        size += len(line) + 1
        if size > limit:
            kept = lines[:index] or [lines[0][: max(0, limit - 1)] + "…"]
            return "\n".join([*kept, say(language, "more_lines", count=len(lines) - len(kept))])
    return "\n".join(lines)


def _head(project: Project, language: Language) -> list[str]:
    production = project.production
    if production:
        lines = sum(m.lines for m in production)
        counts = {"files": project.files, "modules": len(production), "lines": lines}
        found = [say(language, "project_python", name=project.name, **counts)]
    else:
        found = [say(language, "project", name=project.name, files=project.files)]
    if project.readme:
        where = project.at(project.readme.path, project.readme.line)
        found.append(say(language, "readme", where=where, title=project.readme.title))
    if project.languages:
        code_first = sorted(project.languages.items(), key=lambda item: (item[0] in PROSE_AND_DATA, -item[1][0]))
        items = [say(language, "language", name=name, files=count) for name, (count, _) in code_first]
        found.append(say(language, "languages", items=enumerate_items(language, items, 6)))
    if project.truncated:
        found.append(say(language, "truncated", files=project.files))
    return found


def _parts(project: Project, language: Language) -> list[str]:
    if not project.parts:
        items = [say(language, "folder", name=f.name, files=f.files) for f in project.folders]
        return [say(language, "folders", items=enumerate_items(language, items, 12))] if items else []
    lines = [say(language, "parts")]
    for part in project.parts[:_MAX_NAMES]:
        own = project.modules.get(part.dotted)
        doc = own.source.doc if own else ""
        lines.append(
            say(
                language,
                "part",
                name=part.name,
                path=project.at(part.path),
                files=len(part.modules),
                lines=part.lines,
                doc=say(language, "doc", doc=doc) if doc else "",
            )
        )
    others = [part.name for part in project.parts[_MAX_NAMES:]]
    if others:
        lines.append(say(language, "more_parts", count=len(others), items=enumerate_items(language, others, 30)))
    return lines


def _rest(project: Project, language: Language) -> list[str]:
    found = []
    if project.modules:
        found = [
            tests(project, language),
            entry_points(project, language),
            dependencies(project, language),
            cycles(project, language).split("\n")[0],
        ]
    if project.problems:
        found.append(problems(project, language))
    return found


def _size(facts: PartFacts, language: Language) -> str:
    return say(
        language,
        "summary",
        name=facts.part.name,
        path=facts.path,
        files=facts.files,
        lines=facts.part.lines,
        classes=facts.classes,
        functions=facts.functions,
        doc=say(language, "doc", doc=facts.doc) if facts.doc else "",
    )


def _uses(facts: PartFacts, language: Language) -> str:
    if not facts.uses:
        return say(language, "summary_uses_nothing")
    return say(language, "summary_uses", items=_use_items(facts.uses, language, 8))


def _used_by(facts: PartFacts, language: Language) -> str:
    if not facts.used_by:
        return say(language, "summary_used_by_nothing")
    return say(language, "summary_used_by", items=_use_items(facts.used_by, language, 8))


def _use_items(uses: Iterable[Use], language: Language, limit: int) -> str:
    items = [say(language, "use", name=u.name, count=u.imports, where=u.where) for u in uses]
    return enumerate_items(language, items, limit)


def _classes(facts: PartFacts, language: Language) -> list[str]:
    lines = [say(language, "key_classes")] if facts.key_classes else []
    for cls in facts.key_classes:
        bases = f"({', '.join(cls.bases)})" if cls.bases else ""
        doc = say(language, "doc", doc=cls.doc) if cls.doc else ""
        lines.append(say(language, "class", name=cls.name, bases=bases, where=cls.where, doc=doc))
        shown = [m for m in cls.methods if not m.name.startswith("_")] or list(cls.methods)
        if shown:
            items = [say(language, "method", name=m.name, line=m.line) for m in shown]
            total = len(shown)
            lines.append(say(language, "methods", items=enumerate_items(language, items, 6, total)))
    return lines


def _evidence(project: Project, architecture: Architecture, language: Language) -> list[str]:
    items = [_edge(project, edge, language) for edge in architecture.evidence]
    items += [say(language, "at", what=what, where=where) for what, where in architecture.evidence_lines]
    return [say(language, "evidence", items=enumerate_items(language, items, 6))] if items else []


def _edge(project: Project, edge: Edge, language: Language) -> str:
    where = project.where(edge.source, edge.line)
    return say(language, "import", source=edge.source, target=edge.target, where=where)


def _circle(project: Project, circle: tuple[Edge, ...], language: Language) -> str:
    return enumerate_items(language, [_edge(project, edge, language) for edge in circle], 8)


def _short(facts: PartFacts, name: str) -> str:
    return name.removeprefix(facts.part.dotted + ".")
