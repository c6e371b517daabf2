"""SQLAlchemy 2: each flush publishes what it inserts, updates and deletes of mapped classes, in its own transaction.

    projects(Session, {Note: Rule("notes", entity_type="note")})

Statements that go past the session's objects (``session.execute(update(…))``, bulk inserts) make no events: publish
those by hand, or give the table a trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event, inspect
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Mapper, Session

from redrive.errors import ConfigError, InvalidInput
from redrive.kernel.task import NewTask
from redrive.outbox.event import event_task
from redrive.outbox.publish_event import as_json, check_version, configured, put


@dataclass(slots=True, frozen=True)
class Rule:
    """How objects of a class are projected. ``version`` and ``id`` are names of attributes: else those of
    ``version_id_col`` and of the primary key. ``document``: a function of an object, else all its columns; where it
    returns None, the object has no document."""

    projection: str
    entity_type: str | None = None
    version: str | None = None
    id: str | None = None
    document: Callable[[Any], Any] | None = None
    routing: Callable[[Any], str | None] | None = None


@dataclass(slots=True, frozen=True)
class _Projected:
    """A rule with what it leaves open filled in."""

    rule: Rule
    entity_type: str
    version: str
    id: str
    columns: tuple[str, ...]
    raised_by_hand: bool  # the version: neither SQLAlchemy nor the database does

    def upsert(self, one: Any, entity_id: Any, version: int, *, new: bool) -> NewTask | None:
        """Returns the event of an object that is there; of one without a document, that it has none any more."""
        body = self._columns_of(one) if self.rule.document is None else self.rule.document(one)
        if body is None:
            return None if new else self.event(one, "delete", entity_id, version)
        return self.event(one, "create" if new else "upsert", entity_id, version, body)

    def event(self, one: Any, op: str, entity_id: Any, version: int, body: Any = None) -> NewTask:
        rule, tries = self.rule, configured().max_attempts
        routing = None if rule.routing is None else rule.routing(one)
        return event_task(rule.projection, self.entity_type, entity_id, op, version, body, routing, max_attempts=tries)

    def _columns_of(self, one: Any) -> dict[str, Any]:
        return {name: as_json(getattr(one, name)) for name in self.columns}


def projects(target: Any, rules: Mapping[type, Rule]) -> None:
    """Publishes what sessions change of these classes. ``target`` is a ``sessionmaker``, a ``Session`` class or one
    session; of an asynchronous one, that which it is made of."""
    known = {kind: _filled_in(kind, rule) for kind, rule in rules.items()}

    def after_flush(session: Session, _context: Any) -> None:
        by_bind: dict[Any, list[NewTask]] = {}
        for mapper, task in _events(session, known):
            by_bind.setdefault(session.get_bind(mapper), []).append(task)
        for bind, tasks in by_bind.items():
            put(session.connection(bind_arguments={"bind": bind}), tasks)

    event.listen(_sync(target), "after_flush", after_flush)


def _sync(target: Any) -> Any:
    """Returns what events are listened for on: asynchronous sessions wrap ordinary ones."""
    if isinstance(target, async_sessionmaker):
        return target.kw.get("sync_session_class") or target.class_.sync_session_class
    if isinstance(target, AsyncSession):
        return target.sync_session
    if isinstance(target, type) and issubclass(target, AsyncSession):
        return target.sync_session_class
    return target


def _events(session: Session, known: Mapping[type, _Projected]) -> Iterator[tuple[Mapper[Any], NewTask]]:
    """Yields what a flush has written. The session still tells what was new, changed and deleted; deletes come first:
    what takes the place of a deleted object is newer."""
    for one in (*session.deleted, *session.dirty, *session.new):
        how = next((known[kind] for kind in type(one).__mro__ if kind in known), None)
        if how is None or (one in session.dirty and not session.is_modified(one)):
            continue
        for task in _changes(session, one, how):
            if task is not None:
                yield inspect(one).mapper, task


def _changes(session: Session, one: Any, how: _Projected) -> Iterator[NewTask | None]:
    version = check_version(getattr(one, how.version), f"{type(one).__name__}.{how.version}")
    now = getattr(one, how.id)
    if one in session.deleted:
        yield how.event(one, "delete", now, version + 1)
        return
    if how.raised_by_hand and one in session.dirty:
        _refuse_known(session, one, how, version)
    before = inspect(one).attrs[how.id].history.deleted if one in session.dirty else ()
    if before:  # an id that changed is another document
        yield how.event(one, "delete", before[0], version)
    yield how.upsert(one, now, version, new=one in session.new or bool(before))


def _refuse_known(session: Session, one: Any, how: _Projected, version: int) -> None:
    """Refuses a change of columns whose version is not new: the sink would take it for one that it has, and keep the
    old document, and no comparison would find that."""
    raised = inspect(one).attrs[how.version].history.has_changes()
    if not raised and session.is_modified(one, include_collections=False):
        name = type(one).__name__
        raise InvalidInput(
            f"{name} {getattr(one, how.id)} is changed, and its version is still {version}: {how.rule.projection} "
            "would keep the old document",
            hint=f"raise {name}.{how.version} with each change, or map it as version_id_col, which raises itself",
        )


def _is_raised_by_hand(mapper: Mapper[Any], version: str) -> bool:
    column = mapper.columns.get(version)
    if column is None or column is mapper.version_id_col:
        return False
    return column.onupdate is None and column.server_onupdate is None


def _filled_in(kind: type, rule: Rule) -> _Projected:
    mapper: Mapper[Any] = inspect(kind)
    name = kind.__name__
    if rule.id is None and len(mapper.primary_key) != 1:
        raise ConfigError(f"{name} has a primary key of several columns", hint="id= names an attribute that is unique")
    key = rule.id or mapper.get_property_by_column(mapper.primary_key[0]).key
    version = rule.version
    if version is None:
        if mapper.version_id_col is None:
            raise ConfigError(
                f"{name} has no version",
                hint="version= names an attribute that grows with each change, or map version_id_col",
            )
        version = mapper.get_property_by_column(mapper.version_id_col).key
    for attribute in (key, version):
        if attribute not in mapper.attrs:
            raise ConfigError(f"{name} has no mapped attribute {attribute!r}")
    columns = tuple(one.key for one in mapper.column_attrs)
    table = str(getattr(mapper.local_table, "name", name))
    by_hand = _is_raised_by_hand(mapper, version)
    return _Projected(rule, rule.entity_type or table, version, key, columns, by_hand)
