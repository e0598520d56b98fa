"""What holds for all tests inside this process: each has a database of its own, so nothing is remembered of the last one's."""

from __future__ import annotations

import pytest

from sessions_app import hooks, identities, keys, members
from sessions_app.context.relevance import indexes
from traces_app import bell


@pytest.fixture(autouse=True)
def nothing_remembered_of_other_tests() -> None:
    for memory in (identities, members, keys, indexes):
        memory.forget_everything()
    hooks._resolved.cache_clear()
    bell.take_rings()
    bell.take_sessions()
    bell.take_cancelled()
