"""The embedded hub, shared by the tests of a module: each start costs seconds, and these tests use agents of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import HUBS
from tests.hubs import Backends, Hub
from tests.services import HubProcess

FREE = {"HUB_RATE_MESSAGES": "0", "HUB_RATE_REQUESTS": "0", "HUB_RATE_SESSIONS": "0", "HUB_RATE_CONNECTS": "0"}


def embedded_hub(backends: Backends, *arguments: str) -> Iterator[Hub]:
    """What one command starts: web process and worker, on SQLite, with no limits on rates."""
    backend = backends.sqlite()
    hub = Hub(backend, backend.env | FREE)
    hub.add_web(argv=(*HubProcess.SERVE, "--data", str(backend.directory), *arguments))
    yield hub
    hub.stop()


@pytest.fixture(scope="module")
def embedded(backends: Backends) -> Iterator[Hub]:
    """One for the module; a module may have its own, with arguments."""
    yield from embedded_hub(backends)


@pytest.fixture
def serve(embedded: Hub, request: pytest.FixtureRequest) -> Hub:
    """The module's embedded hub; running, also when the test before has stopped it."""
    request.node.stash[HUBS] = [embedded]
    embedded.webs[0].start()
    return embedded
