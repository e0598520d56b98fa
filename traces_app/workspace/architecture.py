"""What one part of a project is and how it is built: facts, and a shape only where the import graph shows one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from traces_app.workspace import graph
from traces_app.workspace.project import Edge, Module, Part, Project, base_name
from traces_app.workspace.python_source import Class, Named

Shape = Literal["roles", "layers", "tangled", "family", "star", "flat", "two_levels", "single", "none"]

# From the outside in. A name is a role only as a module's or package's own name.
_ROLES: tuple[frozenset[str], ...] = (
    frozenset({"cli", "commands"}),
    frozenset({"urls", "routing", "routers", "routes"}),
    frozenset({"views", "viewsets", "controllers", "endpoints", "consumers", "resolvers", "rest"}),
    frozenset({"serializers", "schemas", "forms"}),
    frozenset({"services", "usecases", "use_cases"}),
    frozenset({"selectors", "repositories", "repository", "dao", "crud"}),
    frozenset({"models", "entities"}),
)
_MAX_KEY_CLASSES = 8


@dataclass(frozen=True, slots=True)
class Architecture:
    """`shape` and what carries it.

    roles: `groups` are single units, the outermost first, each importing the next and none the other way.
    layers, two_levels: `groups` are the levels, the top first; no cycles.
    family: `groups` is ((base,), (implementations…)). star: ((centre,), (those that import it…)).
    tangled: `groups` is ((units in one cycle…),). flat, single: the units. none: no claim can be made.
    `evidence` are imports (or, for a family, none: the classes have their own lines in `evidence_lines`).
    """

    shape: Shape
    groups: tuple[tuple[str, ...], ...] = ()
    evidence: tuple[Edge, ...] = ()
    evidence_lines: tuple[tuple[str, str], ...] = ()
    """(what, `path:line`) where the evidence is not an import."""


@dataclass(frozen=True, slots=True)
class Use:
    """How often one part imports another, and where it does so first (`path:line`)."""

    name: str
    imports: int
    where: str


@dataclass(frozen=True, slots=True)
class KeyClass:
    name: str
    where: str
    bases: tuple[str, ...]
    methods: tuple[Named, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class PartFacts:
    part: Part
    path: str
    """From the root, as `read_file` and `list_directory` take it."""
    doc: str
    files: int
    classes: int
    functions: int
    units: tuple[tuple[str, int], ...]
    """(sub-package or module, lines), the largest first."""
    unit_count: int
    unit_edges: int
    """Sub-packages and modules below this part, tests not counted, and which of them import which: how many pairs."""
    key_classes: tuple[KeyClass, ...]
    key_functions: tuple[tuple[str, str], ...]
    """(name, `path:line`) of public functions at module level."""
    defines: tuple[tuple[str, str], ...]
    """(public class, function or constant, `path:line`) of the part's own top module."""
    uses: tuple[Use, ...]
    used_by: tuple[Use, ...]
    tested_by: tuple[Use, ...]
    external: tuple[tuple[str, int], ...]
    """(third-party name, modules that import it)."""
    cycles: tuple[tuple[Edge, ...], ...]
    """For each group that imports itself in a circle and touches this part: one circle, import by import."""
    entry_points: tuple[str, ...]
    problems: tuple[str, ...]
    architecture: Architecture


def describe(project: Project, part: Part) -> PartFacts:
    """The facts of one part of `project`, as `Project.find` gives it."""
    inside = set(part.modules)
    modules = [project.modules[name] for name in part.modules]
    paths = {m.path for m in modules}
    own = project.modules.get(part.dotted)
    units = _units(part, modules)
    children = [u for u in _units(part, [m for m in modules if not m.is_test]) if u != part.dotted]
    return PartFacts(
        part=part,
        path=project.at(part.path),
        doc=own.source.doc if own else "",
        files=len(modules),
        classes=sum(len(m.source.classes) for m in modules),
        functions=sum(len(m.source.functions) for m in modules),
        units=tuple(sorted(((u, sum(m.lines for m in ms)) for u, ms in units.items()), key=lambda u: (-u[1], u[0]))),
        unit_count=len(children),
        unit_edges=len(_unit_edges(project, part, children)),
        key_classes=_key_classes(project, modules),
        key_functions=_key_functions(project, modules),
        defines=_defines(project, own),
        uses=_uses(project, (e for e in project.edges if e.source in inside and e.target not in inside), "target"),
        used_by=_uses(project, _importers(project, inside, tests=False), "source"),
        tested_by=_uses(project, _importers(project, inside, tests=True), "source", by_module=True),
        external=_external(project, inside),
        cycles=_cycles(project, inside),
        entry_points=tuple(project.at(e.path, e.line) for e in project.entry_points if e.path in paths),
        problems=tuple(
            project.at(p.path, p.line)
            for p in project.problems
            if p.path == part.path or p.path.startswith(part.path + "/")
        ),
        architecture=find_architecture(project, part),
    )


def find_architecture(project: Project, part: Part) -> Architecture:
    modules = [project.modules[name] for name in part.modules if not project.modules[name].is_test]
    units = _units(part, modules)
    names = [u for u in units if u != part.dotted]
    if len(modules) <= 1:
        return Architecture("single", (tuple(m.name for m in modules),))
    if len(names) < 2:
        return Architecture("none")
    edges = _unit_edges(project, part, names)
    return shape_of(names, edges, _families(project, part, modules, len(names)), part)


def shape_of(
    names: list[str],
    edges: Mapping[tuple[str, str], Edge],
    families: list[tuple[str, str, list[tuple[str, str, str]]]],
    part: Part | None = None,
) -> Architecture:
    """The first of the shapes that the imports between the units really have."""
    targets: dict[str, set[str]] = defaultdict(set)
    for source, target in edges:
        targets[source].add(target)

    def short(name: str) -> str:
        return name.removeprefix(part.dotted + ".") if part else name

    if chain := _roles(names, targets):
        return Architecture(
            "roles",
            tuple((short(n),) for n in chain),
            tuple(edges[a, b] for a, b in pairwise(chain)),
        )
    circles = graph.cycles(names, targets)
    if circles and len(circles[0]) >= 3 and len(circles[0]) * 2 > len(names):
        circle = graph.a_cycle(circles[0], targets)
        around = zip(circle, [*circle[1:], circle[0]], strict=True)
        return Architecture("tangled", (tuple(map(short, circles[0])),), tuple(edges[pair] for pair in around))
    # Units that have nothing to do with one another make no level: most must take part.
    linked = sorted({name for pair in edges for name in pair})
    levels = graph.levels(linked, targets) if len(linked) * 5 >= len(names) * 3 and not circles else []
    if len(levels) >= 3:
        return Architecture("layers", tuple(tuple(map(short, level)) for level in levels), _way_down(levels, edges))
    if families:
        base, where, members = families[0]
        lines = ((base, where), *((name, at) for name, _, at in members))
        return Architecture("family", ((base,), tuple(name for name, _, _ in members)), (), lines)
    if not edges:
        return Architecture("flat", (tuple(map(short, names)),))
    importers = Counter(target for _, target in edges)
    centre, count = max(importers.items(), key=lambda item: (item[1], item[0]))
    if count >= 3 and count * 5 >= (len(names) - 1) * 3:
        around_it = sorted(source for source, target in edges if target == centre)
        evidence = tuple(edges[source, centre] for source in around_it)
        return Architecture("star", ((short(centre),), tuple(map(short, around_it))), evidence)
    if len(levels) == 2:
        return Architecture("two_levels", tuple(tuple(map(short, level)) for level in levels), _way_down(levels, edges))
    return Architecture("none")


def _roles(names: list[str], targets: Mapping[str, set[str]]) -> list[str]:
    """The longest chain of roles (three at least) in which each imports the next and nothing imports upwards."""
    present = []
    for role in _ROLES:
        present.append([n for n in names if n.rpartition(".")[2] in role])
    best: list[str] = []

    def extend(chain: list[str], at: int) -> None:
        nonlocal best
        if len(chain) > len(best):
            best = list(chain)
        for index in range(at, len(present)):
            for name in present[index]:
                if not chain or name in targets.get(chain[-1], ()):
                    extend([*chain, name], index + 1)

    extend([], 0)
    upwards = any(a in targets.get(b, ()) for i, a in enumerate(best) for b in best[i + 1 :])
    return best if len(best) >= 3 and not upwards else []


def _way_down(levels: list[list[str]], edges: Mapping[tuple[str, str], Edge]) -> tuple[Edge, ...]:
    """One chain of imports from the top level to the bottom."""
    level = {name: at for at, names in enumerate(levels) for name in names}
    for start in levels[0]:
        chain: list[Edge] = []
        here = start
        while level[here] < len(levels) - 1:
            following = sorted(t for s, t in edges if s == here and level[t] == level[here] + 1)
            if not following:
                break
            chain.append(edges[here, following[0]])
            here = following[0]
        else:
            return tuple(chain)
    return ()


def _units(part: Part, modules: Iterable[Module]) -> dict[str, list[Module]]:
    """Direct children of the part (dotted) with the modules in each; its own module stands for itself."""
    units: dict[str, list[Module]] = defaultdict(list)
    start = len(part.dotted) + 1
    for module in modules:
        below = module.name[start:].split(".")[0]
        units[f"{part.dotted}.{below}" if below else part.dotted].append(module)
    return units


def _unit_edges(project: Project, part: Part, names: Iterable[str]) -> dict[tuple[str, str], Edge]:
    """Imports between children, those inside functions included: they are dependencies, too."""
    known = set(names)
    start = len(part.dotted) + 1
    inside = set(part.modules)
    found: dict[tuple[str, str], Edge] = {}
    for edge in project.edges:
        if edge.kind == "typing" or edge.source not in inside or edge.target not in inside:
            continue
        source = f"{part.dotted}.{edge.source[start:].split('.')[0]}"
        target = f"{part.dotted}.{edge.target[start:].split('.')[0]}"
        if source != target and source in known and target in known:
            found.setdefault((source, target), edge)
    return found


def _families(
    project: Project, part: Part, modules: list[Module], units: int
) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """(base, where, [(implementation, module, where)]) for bases that two in five of this part's units implement."""
    defined: dict[str, list[tuple[Module, Class]]] = defaultdict(list)
    for module in modules:
        for cls in module.source.classes:
            defined[cls.name].append((module, cls))
    members: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for module in modules:
        for cls in module.source.classes:
            for base in cls.bases:
                homes = defined.get(base_name(base), [])
                # Two classes of one name: which is meant cannot be told without running the code.
                if len(homes) == 1 and _reaches(project.all_imports[module.name], homes[0][0].name):
                    members[base_name(base)].append((cls.name, module.name, project.where(module.name, cls.line)))
    found = []
    for base, implementations in members.items():
        places = {home[len(part.dotted) + 1 :].split(".")[0] for _, home, _ in implementations}
        if len(places) >= 3 and len(places) * 5 >= units * 2:
            module, cls = defined[base][0]
            names = Counter(name for name, _, _ in implementations)
            told_apart = [
                (f"{home.rpartition('.')[2]}.{name}" if names[name] > 1 else name, home, where)
                for name, home, where in implementations
            ]
            found.append((base, project.where(module.name, cls.line), sorted(told_apart)))
    return sorted(found, key=lambda f: (-len(f[2]), f[0]))


def _reaches(imported: frozenset[str], home: str) -> bool:
    """A class may be imported from its module or from a package above it that passes it on."""
    return any(home == name or home.startswith(name + ".") for name in imported)


def _key_classes(project: Project, modules: list[Module]) -> tuple[KeyClass, ...]:
    """Public classes with the most methods, those of tests last."""
    ranked = sorted(
        ((m, c) for m in modules for c in m.source.classes),
        key=lambda pair: (pair[0].is_test, pair[1].name.startswith("_"), -len(pair[1].methods), pair[1].name),
    )
    return tuple(
        KeyClass(c.name, project.where(m.name, c.line), c.bases, c.methods, c.doc) for m, c in ranked[:_MAX_KEY_CLASSES]
    )


def _key_functions(project: Project, modules: list[Module]) -> tuple[tuple[str, str], ...]:
    chosen = [
        (f.name, project.where(m.name, f.line))
        for m in modules
        if not m.is_test
        for f in m.source.functions
        if not f.name.startswith("_")
    ]
    return tuple(chosen[:_MAX_KEY_CLASSES])


def _defines(project: Project, own: Module | None) -> tuple[tuple[str, str], ...]:
    if own is None:
        return ()
    named: list[Named | Class] = [*own.source.classes, *own.source.constants]
    lines = {n.name: n.line for n in named} | {f.name: f.line for f in own.source.functions}
    ordered = sorted(lines.items(), key=lambda item: item[1])
    return tuple((name, project.where(own.name, line)) for name, line in ordered if not name.startswith("_"))


def _importers(project: Project, inside: set[str], tests: bool) -> Iterable[Edge]:
    return (
        e
        for e in project.edges
        if e.target in inside and e.source not in inside and project.modules[e.source].is_test == tests
    )


def _uses(
    project: Project, edges: Iterable[Edge], end: Literal["source", "target"], by_module: bool = False
) -> tuple[Use, ...]:
    grouped: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        other = edge.source if end == "source" else edge.target
        part = None if by_module else project.part_of.get(other)
        grouped[part.name if part else other].append(edge)
    uses = [Use(name, len(es), project.where(es[0].source, es[0].line)) for name, es in grouped.items()]
    return tuple(sorted(uses, key=lambda u: (-u.imports, u.name)))


def _external(project: Project, inside: set[str]) -> tuple[tuple[str, int], ...]:
    counts = [(top, len(inside.intersection(users))) for top, users in project.external.items()]
    return tuple(sorted(((t, n) for t, n in counts if n), key=lambda item: (-item[1], item[0])))


def _cycles(project: Project, inside: set[str]) -> tuple[tuple[Edge, ...], ...]:
    found = []
    for component in project.cycles:
        if inside.intersection(component):
            found.append(circle_edges(project, component))
    return tuple(found)


def circle_edges(project: Project, component: list[str]) -> tuple[Edge, ...]:
    """One shortest circle in a group of `Project.cycles`, import by import."""
    circle = graph.a_cycle(component, project.imports)
    return tuple(
        project.edge_lines[source, target] for source, target in zip(circle, [*circle[1:], circle[0]], strict=True)
    )
