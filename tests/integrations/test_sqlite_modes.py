"""SQLite takes several statements for one enqueue: they land together in every mode a connection can be in."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from redrive.errors import SchemaError
from redrive.integrations import sqlite
from redrive.stores.sqlite.apply import apply_with
from tests.integrations.conftest import Outside

connect: Any = sqlite3.connect  # takes more than its stubs admit


def test_without_a_transaction_and_with_autocommit_it_is_committed_at_once(on_sqlite: Outside) -> None:
    connection = sqlite3.connect(on_sqlite.address, isolation_level=None)
    task = on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    assert not connection.in_transaction
    assert on_sqlite.tasks == [str(task.id)]
    assert on_sqlite.totals == (1, 0)


def test_sqlalchemy_autocommit(on_sqlite: Outside) -> None:
    engine = sa.create_engine(f"sqlite:///{on_sqlite.address}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        on_sqlite.app.sync.enqueue("OTHER", connection=connection)
        assert on_sqlite.totals == (1, 0)
    engine.dispose()


@pytest.mark.parametrize("level", ["", "IMMEDIATE", "EXCLUSIVE"])
def test_the_usual_modes_wait_for_the_callers_commit(on_sqlite: Outside, level: str) -> None:
    connection = connect(on_sqlite.address, isolation_level=level)
    on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    assert connection.in_transaction
    connection.rollback()
    assert on_sqlite.totals == (0, 0)
    on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    connection.commit()
    assert on_sqlite.totals == (1, 0)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has autocommit since Python 3.12")
@pytest.mark.parametrize("autocommit", [True, False])
def test_the_autocommit_attribute(on_sqlite: Outside, autocommit: bool) -> None:
    connection = connect(on_sqlite.address, autocommit=autocommit)
    on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    assert on_sqlite.totals == (int(autocommit), 0)
    connection.commit()
    connection.close()
    assert on_sqlite.totals == (1, 0)


def test_inside_the_callers_savepoint(on_sqlite: Outside) -> None:
    connection = sqlite3.connect(on_sqlite.address, isolation_level=None)
    connection.execute("begin")
    on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    connection.execute("savepoint mine")
    on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    connection.execute("rollback to mine")
    connection.execute("commit")
    assert on_sqlite.totals == (1, 0)


@pytest.mark.parametrize("level", [None, ""])
@pytest.mark.parametrize("joins", [True, False])
def test_a_failure_half_way_leaves_no_half(
    on_sqlite: Outside, monkeypatch: pytest.MonkeyPatch, level: str | None, joins: bool
) -> None:
    connection = connect(on_sqlite.address, isolation_level=level)
    if joins:
        connection.execute("begin")
        connection.execute("insert into business values ('mine')")

    def half(*given: Any) -> None:
        apply_with(*given)
        raise RuntimeError("half way")

    monkeypatch.setattr(sqlite, "apply_with", half)
    with pytest.raises(RuntimeError, match="half way"):
        on_sqlite.app.sync.enqueue("OTHER", idempotency_key="k", connection=connection)
    assert connection.in_transaction is joins
    connection.commit()
    assert (on_sqlite.tasks, on_sqlite.keys, on_sqlite.totals) == ([], 0, (0, 0))
    assert on_sqlite.business == (["mine"] if joins else [])


def test_no_other_writer_comes_in_between(on_sqlite: Outside) -> None:
    """Had the transaction only read when another writer commits, SQLite would refuse its own write at once."""
    connection = sqlite3.connect(on_sqlite.address, isolation_level=None, timeout=0)
    other = sqlite3.connect(on_sqlite.address, isolation_level=None, timeout=0)
    connection.execute("begin")
    statements: list[str] = []

    def meddle(sql: str) -> None:
        statements.append(sql)
        if len(statements) == 3:  # after the savepoint and the first statement in it
            with contextlib.suppress(sqlite3.OperationalError):
                other.execute("insert into business values ('theirs')")

    connection.set_trace_callback(meddle)
    on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    connection.execute("commit")
    assert on_sqlite.totals == (1, 0)


def test_another_file_is_named(on_sqlite: Outside, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("create table business (note text)")
    connection.execute("insert into business values ('mine')")
    with pytest.raises(SchemaError, match=r"other\.db\) has no redrive tables") as caught:
        on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    connection.commit()
    assert connection.execute("select note from business").fetchall() == [("mine",)]


def test_another_file_through_sqlalchemy(on_sqlite: Outside) -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        with pytest.raises(SchemaError, match=r"in memory\) has no redrive tables"):
            on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    engine.dispose()


def test_a_locked_file_is_the_drivers_own_error(on_sqlite: Outside) -> None:
    other = sqlite3.connect(on_sqlite.address, isolation_level=None)
    other.execute("begin immediate")
    connection = sqlite3.connect(on_sqlite.address, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    other.execute("rollback")
    on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    connection.commit()
    assert on_sqlite.totals == (1, 0)
