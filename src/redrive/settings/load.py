"""Loads the settings of a process, and refuses what cannot be used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from redrive.errors import WrongSetting
from redrive.features import installed
from redrive.settings.declare import fields_by_name, name_of, names_of
from redrive.settings.file_lines import place_of
from redrive.settings.own import Settings
from redrive.settings.sources import file_path, read_file
from redrive.settings.wording import SEE, guess, made

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature


# So much like a name of ours is a table that is taken for it misspelt: orders are somebody's, and no workers.
ALIKE = 0.8


def load_settings(*, features: Iterable[Feature] | None = None, bare: bool = False, **given: Any) -> Settings:
    """Returns the settings with explicit values on top; None means "not given". ``features`` are those whose settings
    belong to it, all installed ones unless said otherwise. ``bare``: no application says which there are, so that the
    file may have tables of others."""
    brought = tuple(installed() if features is None else features)
    found = _made({name: value for name, value in given.items() if value is not None})
    _check_file(brought, bare)
    return found.with_features(brought)


def configured_app() -> str | None:
    """Returns the application that the environment or the file names. Before it is loaded nobody can tell whose the
    other settings are."""
    return _made({}).app


def _made(given: Mapping[str, Any]) -> Settings:
    def in_file(field: str, *below: str) -> str:
        return place_of((field, *below), (name_of(Settings, field).lower(), *below))

    return made(Settings, lambda: Settings(**given), in_file)


def _check_file(features: Iterable[Feature], bare: bool) -> None:
    """Refuses a file with settings that there are not: most likely they are misspelt."""
    file = read_file()
    known = set(fields_by_name(Settings))
    for feature in features:
        if feature.settings is not None:
            known |= {feature.name, *(name.lower() for name in names_of(feature.settings))}
    tables = [name for name, value in file.items() if bare and isinstance(value, dict)]
    foreign = {name for name in tables if not guess(name, known, ALIKE)}
    if unknown := sorted(set(file) - known - foreign):
        told = ", ".join(f"{name}{guess(name, known)}" for name in unknown)
        hint = f"{SEE}; a feature's settings are known with its application (--app)" if bare else SEE
        raise WrongSetting(f"{file_path()} has unknown settings: {told}", hint=hint)
