"""What machines of Hypothesis have in common that play with an application: a store for each history, and a loop."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from redrive import App
from redrive_kit.conformance.harness import Harness
from tests.conformance.harnesses import harness_of

Database = Callable[[], AbstractContextManager[str]]


class AppMachine(RuleBasedStateMachine):
    """Has an application and a harness of the same store, once ``open`` was called."""

    app: Any
    harness: Harness

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.opened = database()
        self.url = self.opened.__enter__()

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    async def open(self, app: App) -> None:
        self.app, self.harness = app, harness_of(self.url, app.features)
        await self.harness.store.open()

    async def come_to_an_end(self) -> None:
        """Checks what has to hold when a history is over."""

    def teardown(self) -> None:
        if hasattr(self, "app"):
            try:
                self.run(self.come_to_an_end())
            finally:
                self.run(self.harness.close())
                self.run(self.app.close())
        self.loop.close()
        self.opened.__exit__(None, None, None)


def play_on_sqlite(machine: Any, make_app: Callable[[str], App], folder: Path, **how: Any) -> None:
    """Plays histories, each in a copy of one migrated file."""
    migrated = folder / "migrated.db"
    asyncio.run(_migrate(make_app(f"sqlite:///{migrated}")))

    @contextmanager
    def copy() -> Iterator[str]:
        with tempfile.TemporaryDirectory() as own:
            yield f"sqlite:///{shutil.copy(migrated, own)}"

    _play(machine, copy, how)


def play_on_postgres(machine: Any, databases: Any, **how: Any) -> None:
    """Plays histories, each in a migrated database without rows."""

    @contextmanager
    def emptied() -> Iterator[str]:
        with databases.emptied() as name:
            yield databases.url(name)

    _play(machine, emptied, how)


def _play(machine: Any, database: Database, how: dict[str, Any]) -> None:
    run_state_machine_as_test(lambda: machine(database), settings=settings(deadline=None, **how))


async def _migrate(app: App) -> None:
    await app.migrate()
    await app.close()
