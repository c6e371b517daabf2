"""What all tests share: the run's PostgreSQL, a database per test, a wire that can be cut."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tools.opensearch.node import Node

from redrive.stores.sqlite.migrate import SqliteMigrations
from tests import cluster
from tests.databases import Databases, drop_templates
from tests.first_imports import import_own_share_first
from tests.new_sqlite_files import at_once, step_by_step
from tests.postgres_sessions import keep_sessions
from tests.proxy import Proxy
from tests.spent import Meter, Spent

_run = pytest.StashKey[Any]()
_search_node = pytest.StashKey[Node]()
_failed = pytest.StashKey[bool]()

# Conformance shows that stores are alike, so what sees a store through its port alone runs on SQLite, and besides on
# PostgreSQL what shows that both are put together: the files named here. Features with statements of their own run both
# where a file is about those statements. A test on PostgreSQL costs three times as much unless it has
# ``kept_sessions``: its connections are new, and plan every function again. What kills and cuts is run on PostgreSQL,
# and on SQLite too in CI where SQLite does it in a way of its own.
ALSO_ON_POSTGRES = {
    "alerts": ("test_slo.py", "test_standby.py"),
    "batches": ("test_batches.py",),
    "batches_remote": ("test_books.py", "test_flow.py", "test_in_flight.py", "test_killed.py", "test_plans.py"),
    "console": ("test_filters.py",),
    "features": ("test_orders.py", "test_reserved.py", "test_broken.py"),
    "metrics": ("test_fleet.py",),
    "ops": ("test_operator.py", "test_audit_chain.py", "test_erase_everywhere.py"),
    "tracing": ("test_ways_in.py",),
    "worker": ("test_outcomes.py", "test_transaction_errors.py", "test_transaction_block.py", "test_bad_rows.py"),
}
# In CI, too: statements of PostgreSQL were wrong that nothing else showed.
IN_CI_ON_POSTGRES = {
    "alerts": ("test_evaluate.py",),
    "batches": ("test_given_again.py", "test_keeping.py", "test_following.py"),
    "batches_remote": (
        *("test_batch_service.py", "test_lost_answers.py", "test_once.py", "test_overdue.py", "test_retries.py"),
        *("test_unknown.py", "test_unstuck.py"),
    ),
    "features": ("test_erase.py",),
    "ops": ("test_erase.py", "test_causes.py", "test_retention.py", "test_retry_log.py"),
}
FAULTS_IN_CI_ON_SQLITE = {
    "batches_remote": ("test_killed.py",),
    "faults": ("test_erase.py", "test_forks.py", "test_killed_worker.py", "test_lease.py", "test_wakeups.py"),
}


def pytest_configure(config: pytest.Config) -> None:
    SqliteMigrations.up = at_once  # type: ignore[method-assign]
    config.pluginmanager.register(Meter())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Spent())
        config.stash[_run] = cluster.begin_run()
        if os.environ.get("REDRIVE_TEST_OPENSEARCH") and Node().url is None:
            # The first test that needs it starts it, and nobody needs it afterwards.
            config.stash[_search_node] = Node()


def pytest_unconfigure(config: pytest.Config) -> None:
    if (node := config.stash.get(_search_node, None)) is not None:
        node.stop()
    run = config.stash.get(_run, None)
    if run is None:
        return
    if os.environ.get("REDRIVE_TEST_POSTGRES_URL") and any(run[0].glob("made_*")):
        with suppress(Exception):
            drop_templates()
    cluster.end_run(run)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave thorough tests to CI, and repetitions to a full run, unless they are asked for by name."""
    if any("::" in argument for argument in config.args):
        return
    repeats = set((Path(__file__).parent / "repeats.txt").read_text(encoding="utf-8").splitlines())
    everything = {item.nodeid.partition("@")[0] for item in items}
    for item in items:
        if item.nodeid.partition("@")[0] in repeats:
            item.add_marker("repeats")
        if mark := _mark_of_other_store(item, everything):
            item.add_marker(mark)
    for mark, variable in (("thorough", "REDRIVE_TEST_THOROUGH"), ("repeats", "REDRIVE_TEST_FULL")):
        if mark in config.option.markexpr or os.environ.get(variable):
            continue
        left = [item for item in items if item.get_closest_marker(mark)]
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if not item.get_closest_marker(mark)]


def _mark_of_other_store(item: pytest.Item, everything: set[str]) -> str | None:
    """Returns which runs a test is for, if the same one on another store is for every run."""
    folder, file = item.path.parent.name, item.path.name
    if item.get_closest_marker("faults") and _other_store(item, "sqlite", "postgres") in everything:
        return "thorough" if file in FAULTS_IN_CI_ON_SQLITE.get(folder, (file,)) else "repeats"
    here_too = file in ALSO_ON_POSTGRES.get(folder, (file,))
    if here_too or _other_store(item, "postgres", "sqlite") not in everything:
        return None
    return "thorough" if file in IN_CI_ON_POSTGRES.get(folder, ()) else "repeats"


def _other_store(item: pytest.Item, store: str, other: str) -> str | None:
    """Returns the name of the same test on another store; None where it is not on this one."""
    name, bracket, parameters = item.nodeid.partition("@")[0].partition("[")
    words = parameters.removesuffix("]").split("-")
    if store not in words:
        return None
    return f"{name}{bracket}{'-'.join(other if word == store else word for word in words)}]"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Forget what a test has printed and logged when it has passed: a run of thousands would keep all of it."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    elif not item.stash.get(_failed, False):
        report.sections.clear()
        if report.when == "teardown":
            item._report_sections.clear()
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Spare the collector the thousands of modules and tests that come now and stay: it would look through them again
    and again, a fifth of the time that this takes."""
    gc.disable()
    import_own_share_first(session.config)
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what nobody should overlook: the console was not seen by a browser; which search server was written to."""
    if any(one.nodeid.startswith("tests/outbox/search/") for one in terminalreporter.stats.get("passed", [])):
        from tests.outbox.search.servers import what

        terminalreporter.line(f"The search sinks were tested against {what()}.")
    skipped = [one for one in terminalreporter.stats.get("skipped", []) if "browser" in one.keywords]
    if skipped:
        why = str(skipped[0].longrepr[2]).removeprefix("Skipped: ")
        terminalreporter.section("THE CONSOLE WAS NOT TESTED IN A BROWSER", sep="!", red=True, bold=True)
        terminalreporter.line(f"{len(skipped)} tests were left out: {why}")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """The shared server. A machine without any is a broken set-up: the wheel brings one."""
    try:
        found = Databases()
    except cluster.NoPostgres as error:
        pytest.fail(str(error))
    yield found
    found.close()


@pytest.fixture(scope="module")
async def kept_sessions(databases: Databases) -> AsyncIterator[None]:
    """Stores of all tests of a module use the same sessions of the server, one after the other, and one event loop.
    Before the fixture that opens a store."""
    async with keep_sessions(databases):
        yield


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    """The name of a migrated database of this test's own, without rows."""
    with databases.emptied() as name:
        yield name


@pytest.fixture
def sqlite_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """New SQLite files go through all steps, as they do for users."""
    monkeypatch.setattr(SqliteMigrations, "up", step_by_step)


@pytest.fixture
def postgres_url(databases: Databases, database: str) -> str:
    return databases.url(database)


@pytest.fixture
def store_url(databases: Databases) -> Iterator[str]:
    """A migrated database without rows, and without tables of features: for a test of the store by itself."""
    with databases.emptied(databases.store) as name:
        yield databases.url(name)


@pytest.fixture
def fresh_store_url(databases: Databases) -> Iterator[str]:
    """The same that nobody has used, for who counts rows."""
    with databases.fresh(template=databases.store.name) as name:
        yield databases.url(name)


@pytest.fixture
def fresh_postgres_url(databases: Databases) -> Iterator[str]:
    """A migrated database that nobody has used, for who counts rows."""
    with databases.fresh() as name:
        yield databases.url(name)


@pytest.fixture
def empty_postgres_url(databases: Databases) -> Iterator[str]:
    """A database without a redrive schema."""
    with databases.fresh(empty=True) as name:
        yield databases.url(name)


@pytest.fixture
def proxy(databases: Databases, database: str) -> Iterator[Proxy]:
    """A wire to the run's server; ``proxied_url`` goes through it."""
    parts = urlsplit(databases.url(database))
    with Proxy(parts.hostname or "127.0.0.1", parts.port or 5432) as wire:
        yield wire


@pytest.fixture
def proxied_url(databases: Databases, database: str, proxy: Proxy) -> str:
    parts = urlsplit(databases.url(database))
    return parts._replace(netloc=f"{parts.username or 'postgres'}@127.0.0.1:{proxy.port}").geturl()


@pytest.fixture
def own_cluster() -> Iterator[cluster.Cluster]:
    """A server of this test's own, to stop, crash and start again."""
    try:
        own = cluster.private_cluster()
    except cluster.NoPostgres as error:
        pytest.fail(str(error))
    yield own
    own.remove()
