"""Directed graphs as `{node: targets}`: cycles and levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Graph = Mapping[str, Iterable[str]]


def components(nodes: Iterable[str], graph: Graph) -> list[list[str]]:
    """Strongly connected components, each after those it points to (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for start in nodes:
        if start in index:
            continue
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        work = [(start, iter(graph.get(start, ())))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(graph.get(target, ()))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    component: list[str] = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    found.append(sorted(component))
    return found


def cycles(nodes: Iterable[str], graph: Graph) -> list[list[str]]:
    """Components of two or more nodes, the largest first."""
    return sorted((c for c in components(nodes, graph) if len(c) > 1), key=lambda c: (-len(c), c))


def a_cycle(component: list[str], graph: Graph) -> list[str]:
    """One shortest closed path inside a component, its first node not repeated at the end."""
    inside = set(component)
    start = component[0]
    came: dict[str, str] = {}
    queue = [start]
    for node in queue:
        for target in sorted((set(graph.get(node, ())) - {node}) & inside):
            if target == start:
                path = [node]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path[::-1]
            if target not in came:
                came[target] = node
                queue.append(target)
    return component


def levels(nodes: Iterable[str], graph: Graph) -> list[list[str]]:
    """Nodes by the longest way down, the top first; nodes of one cycle share a level."""
    nodes = list(nodes)
    depth: dict[str, int] = {}
    for component in components(nodes, graph):
        inside = set(component)
        below = [depth[target] for node in component for target in graph.get(node, ()) if target not in inside]
        for node in component:
            depth[node] = 1 + max(below, default=-1)
    height = max(depth.values(), default=-1)
    return [sorted(n for n in nodes if depth[n] == at) for at in range(height, -1, -1)]
