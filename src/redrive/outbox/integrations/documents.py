"""What the helpers for ORMs share: values of columns as JSON, and events put into the caller's transaction."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.integrations import OwnCommit, apply_on
from redrive.kernel.commit import Commit
from redrive.kernel.task import NewTask


def as_json(value: Any) -> Any:
    """Returns a column's value as JSON has it: times as ISO 8601, numbers that floats cannot hold as text, bytes as
    base64."""
    match value:
        case None | bool() | int() | float() | str():
            return value.value if isinstance(value, Enum) else value
        case Enum():
            return as_json(value.value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal() | UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode()
        case Mapping():
            return {str(key): as_json(one) for key, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [as_json(one) for one in value]
    return str(value)


def check_version(version: Any, what: str) -> int:
    """Returns the version of an entity, if it is one."""
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise InvalidInput(
            f"the version of {what} is {version!r}, not a whole number from 0 on",
            hint="it has to be set before the row is written, and to grow with each change",
        )
    return version


def put(connection: Any, tasks: Sequence[NewTask]) -> None:
    """Puts events into the transaction of a blocking connection."""
    if tasks:
        apply_on(connection, OwnCommit(Commit(enqueues=tasks)))
