"""Lists settings as they are in effect, and where each comes from."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from pydantic_settings import BaseSettings

from redrive.kernel.feature import Feature
from redrive.settings.declare import fields_by_name, name_of
from redrive.settings.load_feature import file_part
from redrive.settings.own import Settings
from redrive.settings.sources import read_file


@dataclass(slots=True, frozen=True)
class Effective:
    """A setting as it is in effect. ``source``: environment, file, given (to ``App`` or on the command line) or
    default; ``value`` is None where it is a secret; ``feature`` brings it, if it is not redrive's own."""

    name: str
    value: str | None
    source: str
    default: str
    feature: str | None = None


def effective(settings: Settings, features: Iterable[Feature] = ()) -> list[Effective]:
    """Returns every setting by its name. What may hold a password or a secret is not shown."""
    known = fields_by_name(Settings)
    found = [*_listed(settings, {known[name] for name in read_file() if name in known})]
    for feature in features:
        if feature.settings is not None:
            found += _listed(settings.of(feature.settings), set(file_part(feature)), feature.name)
    return found


def _listed(settings: BaseSettings, in_file: Collection[str], feature: str | None = None) -> Iterator[Effective]:
    kind = type(settings)
    for field, info in kind.model_fields.items():
        name, value = name_of(kind, field), getattr(settings, field)
        source = "default"
        if field in settings.model_fields_set:
            source = "environment" if name in os.environ else "file" if field in in_file else "given"
        secret = info.repr is False
        default = "" if secret else str(info.get_default(call_default_factory=True))
        yield Effective(name, None if secret and value is not None else str(value), source, default, feature)
