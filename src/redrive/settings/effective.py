"""Lists settings as they are in effect, and where each comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.settings.declare import Values, fields_of
from redrive.settings.own import Settings

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature


@dataclass(slots=True, frozen=True)
class Effective:
    """A setting as it is in effect. ``source``: environment, file, given (to ``App`` or on the command line) or
    default; ``value`` is None where it is a secret; ``feature`` brings it, if it is not redrive's own; ``given`` is
    what was set, where others do not allow that."""

    name: str
    value: str | None
    source: str
    default: str
    feature: str | None = None
    given: str | None = None


def effective(settings: Settings, features: Iterable[Feature] = ()) -> list[Effective]:
    """Returns every setting by its name. What may hold a password or a secret is not shown."""
    found = [*_listed(settings)]
    for feature in features:
        if feature.settings is not None:
            found += _listed(settings.of(feature.settings), feature.name)
    return found


def _listed(settings: Values, feature: str | None = None) -> Iterator[Effective]:
    for field, one in fields_of(type(settings)).items():
        value = getattr(settings, field)
        default = _text(one.default) if one.repr else ""
        # What everybody has is no secret; the URL of a connection is, whoever says it.
        shown = _text(value) if one.repr or value is None or value == one.default else None
        used = _used(settings, field)
        if used is None or used == value:
            yield Effective(one.name, shown, settings.source_of(field), default, feature)
        else:
            given = None if value is None else shown
            yield Effective(one.name, _text(used), settings.source_of(field), default, feature, given)


def _used(settings: Values, field: str) -> int | None:
    """Returns the milliseconds that a time comes to when others are taken into account: a heartbeat must come before
    its lease ends. None where it is no time, or is used as it is."""
    name = field.removesuffix("_ms")
    if name == field or not isinstance(getattr(type(settings), name, None), property):
        return None
    seconds: float = getattr(settings, name)
    return round(seconds * 1000)


def _text(value: object) -> str:
    """Returns a value as people write it: 24, not 24.0, and of tables what they say."""
    if type(value) is dict:  # one of a class of its own says itself what may be shown
        value = {name: one.given if isinstance(one, Values) else one for name, one in value.items()}
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
