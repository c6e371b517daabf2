"""The auditor itself: books that were tampered with do not balance."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from storm.account import audit
from storm.pace import FAST
from storm.rows import Row, read_rows
from storm.scenarios.sqlite import OnSqlite
from storm.stage import Stage
from storm.verdict import Result
from storm.world import World

from redrive_kit.labs.journal import Journal, read
from tests import cluster

pytestmark = [pytest.mark.storms, pytest.mark.xdist_group("storms"), pytest.mark.timeout(300)]


class Calm(OnSqlite):
    """Nothing happens, and then somebody changes the books."""

    name = "calm"
    about = "nothing"
    found: dict[str, int]

    def inject(self, world: World, seconds: float) -> None: ...

    def judge(self, world: World, result: Result) -> None:
        world.fleet.close()  # workers would recover the lease that is forged below, in the middle of the audit
        tamper(world, iter(read_rows(world)))
        self.found = audit(world)[0].wrong


def tamper(world: World, rows: Iterator[Row]) -> None:
    def next_of(kind: str) -> str:
        return next(row.id for row in rows if row.kind == kind)

    world.sql(f"delete from redrive_history where id = '{next_of('PLAIN')}'")
    world.sql(f"insert into redrive_history select * from redrive_history where id = '{next_of('PLAIN')}'")
    world.sql(f"insert into ledger select * from ledger where task_id = '{next_of('LEDGER')}'")
    world.sql(f"delete from ledger where task_id = '{next_of('LEDGER')}'")
    world.sql(f"delete from redrive_attempt where task_id = '{next_of('FLAKY')}'")
    world.sql(
        "insert into redrive_task (id, created_at, state, lease_token, lease_expires_at, max_attempts, kind, queue) "
        f"values ('{uuid4()}', 1, 'running', '{uuid4()}', 1, 1, 'PLAIN', 'default')"
    )
    again = next_of("PLAIN")
    effect = next(line for line in read(world.directory, "effects") if line[:2] == ["start", again])
    Journal(world.directory / "effects-forged.journal").write(*effect)


def test_books_that_were_tampered_with_do_not_balance() -> None:
    directory = cluster.run_directory() / f"storms-{uuid4().hex[:6]}"
    directory.mkdir(mode=0o755)
    calm = Calm(Stage(FAST, 1, directory))
    result = calm.run()
    assert result.holds, [verdict for verdict in result.verdicts if not verdict.holds]
    assert calm.found == {
        "lost": 1,
        "never offered": 1,
        "committed twice": 2,
        "torn": 1,
        "stuck": 1,
        "unfinished": 1,
        "failed": 0,
        "runs over attempts": 2,
        "ran twice on one lease": 1,
        "completed without its effect": 0,
        "totals": 1,
        "timelines": 1,
    }
