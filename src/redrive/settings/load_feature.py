"""Loads the settings of a feature: the environment, then its part of ``redrive.toml``, then their defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigError, WrongSetting
from redrive.settings.declare import FeatureSettings, fields_by_name, name_of, names_of
from redrive.settings.file_lines import place_of
from redrive.settings.sources import environment, file_path, file_values, read_file
from redrive.settings.wording import SEE, guess, made

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature

# What begins like this is redrive's own: a process that does not know a feature warns of everything else there.
OURS = ("REDRIVE_", "TASK_WORKER_", "TASK_AUDIT_", "INTERNAL_WORKER_")


def load_feature(feature: Feature) -> FeatureSettings:
    """Returns the settings of a feature that has some, as they are configured."""
    kind = check_kind(feature)
    from_environment, from_file = environment(kind), file_part(feature)

    def make() -> FeatureSettings:
        return kind.configured(environment=from_environment, file=from_file)

    def in_file(field: str, *below: str) -> str:
        name = name_of(kind, field).lower()
        return place_of(*((*table, one, *below) for table in ((feature.name,), ()) for one in (field, name)))

    return made(kind, make, in_file)


def check_kind(feature: Feature) -> type[FeatureSettings]:
    """Returns the class of a feature's settings; one that would be mistaken for something else is refused."""
    kind = feature.settings
    if not (isinstance(kind, type) and issubclass(kind, FeatureSettings)):
        raise ConfigError(f"the settings of feature {feature.name!r} are no class of FeatureSettings")
    for name in names_of(kind):
        if name != name.upper():
            raise ConfigError(f"{kind.__name__}.{name} has no name", hint="declare it with setting(NAME, default)")
        if name.startswith(OURS):
            raise ConfigError(
                f"{name} of feature {feature.name!r} begins like a setting of redrive's own", hint="rename it"
            )
    return kind


def file_part(feature: Feature) -> dict[str, Any]:
    """Returns what the file says about a feature, by field: at its top, or in the table that is named after it."""
    kind, file = check_kind(feature), read_file()
    known = fields_by_name(kind)
    table = file.get(feature.name, {})
    if not isinstance(table, dict):
        raise WrongSetting(f"{file_path()}: {feature.name} is a table, [{feature.name}]", hint=SEE)
    if unknown := sorted(set(table) - set(known)):
        told = ", ".join(f"{feature.name}.{name}{guess(name, known)}" for name in unknown)
        raise WrongSetting(f"{file_path()} has unknown settings: {told}", hint=SEE)
    tops = {name.lower() for name in names_of(kind)}
    written = [*((name, file[name]) for name in sorted(tops & set(file))), *table.items()]
    return file_values(kind, written, feature.name)
