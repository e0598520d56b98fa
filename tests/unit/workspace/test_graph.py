from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from traces_app.workspace import graph

NODES = "abcdef"
GRAPHS = st.dictionaries(st.sampled_from(NODES), st.sets(st.sampled_from(NODES), max_size=4), max_size=6)


def reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(edges.get(start, ()))
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo.extend(edges.get(node, ()))
    return seen


@given(GRAPHS)
def test_components_are_the_nodes_that_reach_one_another(edges: dict[str, set[str]]) -> None:
    found = graph.components(NODES, edges)
    assert sorted(n for c in found for n in c) == sorted(NODES)
    for component in found:
        for node in NODES:
            mutual = node == component[0] or (
                node in reachable(component[0], edges) and component[0] in reachable(node, edges)
            )
            assert (node in component) == mutual


@given(GRAPHS)
def test_a_cycle_is_a_closed_path(edges: dict[str, set[str]]) -> None:
    for component in graph.cycles(NODES, edges):
        path = graph.a_cycle(component, edges)
        assert len(path) >= 2
        assert len(set(path)) == len(path)
        assert all(b in edges[a] for a, b in zip(path, [*path[1:], path[0]], strict=True))


@given(GRAPHS)
def test_a_level_imports_only_lower_ones_but_for_cycles(edges: dict[str, set[str]]) -> None:
    levels = graph.levels(NODES, edges)
    depth = {node: at for at, names in enumerate(levels) for node in names}
    for source, targets in edges.items():
        for target in targets:
            if source != target and source not in reachable(target, edges):
                assert depth[source] < depth[target]


def test_a_long_chain_does_not_overflow_the_stack() -> None:
    chain = {str(n): [str(n + 1)] for n in range(20_000)}
    assert len(graph.components([str(n) for n in range(20_001)], chain)) == 20_001
