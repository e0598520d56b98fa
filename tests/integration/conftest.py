"""What holds for all tests inside this process: each has a database of its own, so nothing is remembered of the last one's."""

from __future__ import annotations

import pytest

from sessions_app import identities, keys, members


@pytest.fixture(autouse=True)
def nothing_remembered_of_other_tests() -> None:
    for module in (identities, members, keys):
        module.forget_everything()
