"""Fixtures: real services for a test session, and whole hubs for a test. A missing program skips; in CI it fails."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import hypothesis
import pytest
from django.core.management.commands import flush

from tests.hubs import Backend, Backends, Hub
from tests.processes import Missing
from tests.services import HubProcess, PostgresServer, RedisServer

HubFactory = Callable[..., Hub]

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
HUBS = pytest.StashKey[list[Hub]]()
DATABASE_FIXTURES = {"db", "transactional_db", "django_db_reset_sequences", "django_db_serialized_rollback"}
PROCESS_FIXTURES = {"backend", "backends", "hub_factory", "live_hub", "redis_server", "postgres_server"}

# A test on a busy machine is slow, not wrong; in CI the examples are the same at each run.
hypothesis.settings.register_profile("hub", deadline=None, derandomize=IN_CI)
hypothesis.settings.load_profile("hub")


# --- services ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for the session. A test that stops it starts it again; one that loses its data takes its own."""
    try:
        server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    except Missing as missing:
        pytest.skip(f"missing: {missing}")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for the session, with fsync on."""
    try:
        server = PostgresServer()
    except Missing as missing:
        pytest.skip(f"missing: {missing}")
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="session")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Backends:
    return Backends(tmp_path_factory.mktemp("backends"))


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, backends: Backends) -> Backend:
    """A fresh, migrated database: the test runs on SQLite alone, and on PostgreSQL with Redis.

    `@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)` restricts a test to one of them.
    """
    return backends.chosen(request)


@pytest.fixture
def hub_factory(request: pytest.FixtureRequest, backend: Backend) -> Iterator[HubFactory]:
    """`hub_factory(n, env=…, argv=…)`: a hub on `backend` with n web processes, maybe 0; stopped after the test."""
    hubs: list[Hub] = []

    def make(webs: int = 1, *, env: Mapping[str, str] | None = None, argv: Sequence[str] = HubProcess.DAPHNE) -> Hub:
        hub = Hub(backend, backend.env | dict(env or {}))
        hubs.append(hub)
        hub.add_webs(webs, argv=argv)
        return hub

    # The live lists, so that the report of a failure shows the logs of what was started later, too.
    request.node.stash[HUBS] = hubs
    yield make
    for hub in hubs:
        hub.stop()


@pytest.fixture
def live_hub(hub_factory: HubFactory) -> Hub:
    """A hub with one web process."""
    return hub_factory(1)


# --- the database of tests in this process ----------------------------------------------------------------------------

MADE_BY_MIGRATE = {"django_content_type", "auth_permission", "django_migrations"}


@pytest.fixture(scope="session", autouse=True)
def quick_flush() -> Iterator[None]:
    """After a test that commits, delete the rows that tests can have made, and leave what `migrate` has made.

    Django empties everything and makes content types and permissions anew, which takes longer than most of our tests; and
    to truncate some fifty tables of PostgreSQL that hold a handful of rows takes ten times as long as to delete these.
    """

    def statements(style: Any, connection: Any, reset_sequences: bool = True, allow_cascade: bool = False) -> list[str]:
        tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
        # In any order: they run in one transaction, and foreign keys are checked at its end.
        return [f"DELETE FROM {connection.ops.quote_name(table)}" for table in tables if table not in MADE_BY_MIGRATE]

    patch = pytest.MonkeyPatch()
    patch.setattr(flush, "sql_flush", statements)
    patch.setattr(flush, "emit_post_migrate_signal", lambda *arguments: None)
    yield
    patch.undo()


# --- what a run says about itself -------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """A run that is told to end (a time limit, a closed terminal) still stops the services that it started."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: pytest.exit(f"ended by signal {number}", returncode=128 + number))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by fixtures: `processes` starts hubs and brings its own backends, `database` uses pytest's one database."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & PROCESS_FIXTURES:
            item.add_marker("processes")
        elif fixtures & DATABASE_FIXTURES or item.get_closest_marker("django_db"):
            item.add_marker("database")
            if "tests/unit/" in item.path.as_posix():  # these are not run again on PostgreSQL
                raise pytest.UsageError(f"{item.nodeid} uses the database: it belongs into tests/integration")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows the logs of the hubs it used; in CI a skip is a failure."""
    report = yield
    if report.failed:
        for hub in item.stash.get(HUBS, []):
            report.sections += [(f"log of {process.name}", process.log_tail()) for process in hub.processes]
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"In CI a skip is a failure. {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In CI a module that skips itself is a failure, too."""
    report = yield
    if IN_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"In CI a skip is a failure. {_reason(report)}"
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was skipped, once for each reason; the reason says how to get what is missing."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if reasons:
        terminalreporter.section("skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count} test{'s' if count > 1 else ''}: {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why it was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
    return text.removeprefix("Skipped: ")
