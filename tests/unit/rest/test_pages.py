"""Paging arithmetic over a log in memory: exact in both directions, whatever the floor, the limit and the sizes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.changes import Committed
from sessions_app.protocol import limits
from sessions_app.protocol.errors import Invalid
from sessions_app.rest import pages
from sessions_app.rest.reading import Query
from sessions_app.selectors import Access


class Log:
    """A session whose messages are `{"n": sequence}` padded to a size; reads as `sessions_app.sql` does."""

    def __init__(self, sizes: list[int]) -> None:
        self.messages = [
            Committed(n, 1, n, "a", "chat", json.dumps({"n": n, "x": "x" * size}))
            for n, size in enumerate(sizes, start=1)
        ]

    def after(self, session_pk: int, after: int, limit: int, up_to: int | None = None) -> list[Committed]:
        return [m for m in self.messages if after < m.sequence <= (up_to or 0)][:limit]

    def before(self, session_pk: int, before: int, floor: int, limit: int) -> list[Committed]:
        return [m for m in self.messages if floor <= m.sequence < before][-limit:]


def page_of(log: Log, access: Access, query: str) -> dict[str, object]:
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(pages, "messages_after", log.after)
        patched.setattr(pages, "messages_before", log.before)
        return dict(json.loads(pages.log_page(access, Query(query))))


def access_to(last: int, floor: int = 1) -> Access:
    return Access(1, "sess-x", "active", last, floor, None, None, True)


def numbers(page: dict[str, object]) -> list[int]:
    return [message["n"] for message in page["messages"]]  # type: ignore[attr-defined]


SIZES = st.lists(st.sampled_from([1, 100, 500_000]), max_size=130)


@given(SIZES, st.integers(1, 131), st.integers(1, 200))
def test_paging_up_gives_each_message_once_in_order(sizes: list[int], floor: int, limit: int) -> None:
    log, access = Log(sizes), access_to(len(sizes), min(floor, len(sizes) + 1))
    seen: list[int] = []
    after, more = 0, True
    while more:
        page = page_of(log, access, f"after={after}&limit={limit}")
        found = numbers(page)
        assert len(found) <= limit
        assert sum(len(m.body) for m in log.messages if m.sequence in found) <= limits.PAGE_BYTES or len(found) == 1
        seen += found
        more = bool(page["has_more"])
        assert bool(found) or not more
        after = found[-1] if found else after
    assert seen == list(range(access.first_sequence, len(sizes) + 1))


@given(SIZES, st.integers(1, 131), st.integers(1, 200))
def test_paging_down_gives_each_message_once_in_order(sizes: list[int], floor: int, limit: int) -> None:
    log, access = Log(sizes), access_to(len(sizes), min(floor, len(sizes) + 1))
    seen: list[int] = []
    before, more = 2**62, True
    while more:
        page = page_of(log, access, f"before={before}&limit={limit}")
        found = numbers(page)
        assert found == sorted(found)
        seen = found + seen
        more = bool(page["has_more"])
        assert bool(found) or not more
        before = found[0] if found else before
    assert seen == list(range(access.first_sequence, len(sizes) + 1))


def test_a_message_that_alone_is_larger_than_a_page_is_a_page() -> None:
    log = Log([5 * 1024 * 1024, 1])
    up = page_of(log, access_to(2), "")
    assert (numbers(up), up["has_more"]) == ([1], True)
    down = page_of(log, access_to(2), "before=2")
    assert (numbers(down), down["has_more"]) == ([1], False)


def test_what_came_after_the_look_at_the_session_is_for_the_next_page() -> None:
    page = page_of(Log([1] * 10), access_to(last=4), "limit=50")
    assert (numbers(page), page["last_sequence"], page["has_more"]) == ([1, 2, 3, 4], 4, False)


@pytest.mark.parametrize(
    ("query", "details"),
    [
        ("after=5", {"field": "after", "last_sequence": 4}),
        ("before=0", {"field": "before"}),
        ("after=1&before=3", {"field": "before"}),
    ],
)
def test_an_impossible_position_is_invalid(query: str, details: dict[str, object]) -> None:
    with pytest.raises(Invalid) as refusal:
        page_of(Log([1] * 4), access_to(4), query)
    assert refusal.value.details == details
