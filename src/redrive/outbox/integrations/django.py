"""Django: each save and delete of a model publishes an event, in the same transaction.

    projects(Note, "notes")  # in AppConfig.ready

Django tells of a save when its own statement is over: outside of ``transaction.atomic()`` the row would be committed by
then, so that is refused before anything is written. Query sets (``update``, ``bulk_create``) send no signals: publish
those by hand, or give the table a trigger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.models.signals import post_delete, post_save, pre_save

from redrive.errors import ConfigError, InvalidInput
from redrive.outbox.event import event_task
from redrive.outbox.publish_event import as_json, check_version, configured, put


@dataclass(slots=True, frozen=True)
class _Projected:
    model: Any
    projection: str
    entity_type: str
    version: str
    document: Callable[[Any], Any] | None

    def before_save(self, sender: Any, *, instance: Any, using: str, raw: bool = False, **_: Any) -> None:
        if not connections[using].in_atomic_block and not raw:
            raise InvalidInput(
                f"{sender.__name__} is projected to {self.projection}, and is saved outside of a transaction",
                hint="save it inside `with transaction.atomic():`, or set ATOMIC_REQUESTS: then row and event are one",
            )
        known = not instance._state.adding and not raw
        instance._redrive_before = _row_of(instance, using) if known else None

    def saved(
        self, sender: Any, *, instance: Any, using: str, created: bool = False, update_fields: Any = None, **_: Any
    ) -> None:
        whole = update_fields is None and self._is_plain(instance)  # else the row has other values
        current = instance if whole else _read_again(instance, using)
        before = getattr(instance, "_redrive_before", None)
        if before is not None and self._version(current) <= self._version(before):
            self._refuse_changed(current, before)
            return
        body = _fields_of(current) if self.document is None else self.document(current)
        if body is not None:
            self._publish(instance.pk, "create" if created else "upsert", self._version(current), body, using)
        elif not created:  # it may have had a document
            self._publish(instance.pk, "delete", self._version(current), None, using)

    def deleted(self, sender: Any, *, instance: Any, using: str, **_: Any) -> None:
        if not self._is_plain(instance):
            raise InvalidInput(
                f"the version of a {sender.__name__} that is deleted is not known",
                hint="refresh_from_db() before delete(): it was last saved with an expression",
            )
        version = self._version(instance) + 1
        self._publish(instance.pk, "delete", version, None, using)

    def _publish(self, key: Any, op: str, version: int, body: Any, using: str) -> None:
        tries = configured().max_attempts
        task = event_task(self.projection, self.entity_type, str(key), op, version, body, max_attempts=tries)
        put(connections[using], [task])

    def _refuse_changed(self, current: Any, before: Any) -> None:
        """Refuses a change whose version is not new: the sink would take it for one that it has, and keep the old
        document, and no comparison would find that. A save that changes nothing is let through, and publishes
        nothing."""
        if _fields_of(current) == _fields_of(before):
            return
        name = type(current).__name__
        raise InvalidInput(
            f"{name} {current.pk} is saved with version {self._version(current)}, and had {self._version(before)} "
            f"before: {self.projection} would keep the old document",
            hint=f"raise {name}.{self.version} with each save, for example in save(): self.{self.version} += 1",
        )

    def _version(self, instance: Any) -> int:
        return check_version(getattr(instance, self.version), f"{type(instance).__name__}.{self.version}")

    def _is_plain(self, instance: Any) -> bool:
        """Whether its fields are values: an expression (``F("version") + 1``) is computed by the database."""
        return not any(hasattr(getattr(instance, one.attname), "resolve_expression") for one in _concrete(instance))


def projects(
    model: Any,
    projection: str,
    *,
    entity_type: str | None = None,
    version: str = "version",
    document: Callable[[Any], Any] | None = None,
) -> None:
    """Publishes saves and deletes of a model. ``version`` is a whole number that each save raises; ``document`` a
    function of an instance, else all its fields; where it returns None, the instance has no document."""
    if version not in {one.attname for one in _concrete(model)}:
        raise ConfigError(
            f"{model.__name__} has no field {version!r}", hint="version= names a whole number that each save raises"
        )
    how = _Projected(model, projection, entity_type or model._meta.model_name, version, document)
    for signal, receiver in ((pre_save, how.before_save), (post_save, how.saved), (post_delete, how.deleted)):
        signal.connect(receiver, sender=model, weak=False, dispatch_uid=f"redrive:{projection}:{model._meta.label}")


def _concrete(model: Any) -> list[Any]:
    return list(model._meta.concrete_fields)


def _fields_of(instance: Any) -> dict[str, Any]:
    return {one.attname: as_json(one.value_from_object(instance)) for one in _concrete(instance)}


def _row_of(instance: Any, using: str) -> Any:
    """Returns the row as it is now; None where there is none."""
    return type(instance)._base_manager.using(using).filter(pk=instance.pk).first()


def _read_again(instance: Any, using: str) -> Any:
    return type(instance)._base_manager.using(using).get(pk=instance.pk)
