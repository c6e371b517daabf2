"""Prints triggers for people who may change the database's tables."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.ops.access import Role
from redrive.ops.operator.session import Service
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.triggers import postgres, sqlite
from redrive.outbox.triggers.table_mapping import SEQUENCE, map_table, shape_of


class TriggerService(Service):
    """``operator.of(TriggerService)``."""

    async def script(
        self,
        table: str,
        projection: str,
        *,
        entity_type: str | None = None,
        id: str | None = None,
        version: str = SEQUENCE,
        columns: Sequence[str] | None = None,
    ) -> str:
        """Returns the script that projects a table. It looks at the table's definition, and changes nothing."""
        self._session.may(Role.OPERATOR)
        shape = await shape_of(self._store, table)
        one = map_table(
            shape,
            projection,
            entity_type=entity_type,
            id=id,
            version=version,
            columns=columns,
            max_attempts=self._session.settings.of(OutboxSettings).max_attempts,
        )
        return postgres.trigger_sql(one) if one.schema else sqlite.trigger_sql(one)
