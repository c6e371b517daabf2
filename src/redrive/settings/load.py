"""Loads the settings of a process, and refuses what cannot be used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from redrive.errors import WrongSetting
from redrive.features import installed
from redrive.settings.alerts import ALIKE, problems_of_rules
from redrive.settings.declare import fields_by_name, fields_of, name_of, names_of
from redrive.settings.file_lines import place_of
from redrive.settings.own import Settings
from redrive.settings.sources import read_file
from redrive.settings.values import Unfit
from redrive.settings.wording import SEE, guess, made

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature

DATABASE_URL = "DATABASE_URL"
_KNOWN_STORES = re.compile(r"(sqlite|postgres|postgresql)(\+\w+)?://", re.IGNORECASE)


def load_settings(*, features: Iterable[Feature] | None = None, bare: bool = False, **given: Any) -> Settings:
    """Returns the settings with explicit values on top; None means "not given". ``features`` are those whose settings
    belong to it, all installed ones unless said otherwise. ``bare``: no application says which there are, so that the
    file may have tables of others."""
    brought = tuple(installed() if features is None else features)
    _check_file(brought, bare)  # first: what is misspelt is missing elsewhere
    said = {name: value for name, value in given.items() if value is not None}
    found = _with_database_url(made(Settings, lambda: Settings(**said), _in_file))
    made(Settings, lambda: _check_rules(found, brought, bare), _in_file)
    return found.with_features(brought)


def _with_database_url(found: Settings) -> Settings:
    """Returns the settings with the store of DATABASE_URL, where nothing else names one and it is one that we know."""
    url = os.environ.get(DATABASE_URL, "")
    if found.is_store_named or not _KNOWN_STORES.match(url):
        return found
    return found.from_source(DATABASE_URL, url=url)


def database_url_note(settings: Settings, url: str) -> str | None:
    """Returns what to say at the start of a process of DATABASE_URL, where that is set; ``url`` is the store's."""
    given = os.environ.get(DATABASE_URL)
    if not given:
        return None
    if settings.source_of("url") == DATABASE_URL and url == given:
        return (
            "the store is that of DATABASE_URL: neither --url, REDRIVE_URL, the application nor redrive.toml names one"
        )
    if url == given:
        return None
    why = "another store is named" if settings.is_store_named or url != settings.url else "no store is known for it"
    return f"DATABASE_URL is ignored: {why}"


def configured_app() -> str | None:
    """Returns the application that the environment or the file names. Before it is loaded nobody can tell whose the
    other settings are."""
    one, file = fields_of(Settings)["app"], read_file()
    written = next((file[name] for name in (one.name.lower(), one.field) if name in file), None)
    said: str | None = made(Settings, lambda: one.read(os.environ.get(one.name) or written), _in_file)
    return said


def store_url(settings: Settings) -> str:
    """Returns where the default connection is. Refuses one that is configured without."""
    return made(Settings, settings.needed_url, _in_file)


def _in_file(field: str, *below: str) -> str:
    return place_of((field, *below), (name_of(Settings, field).lower(), *below))


def _check_rules(found: Settings, features: Iterable[Feature], bare: bool) -> None:
    """Refuses what is said about alerts that no feature brings, and that are not ours."""
    brought = [rule.name for feature in features for rule in feature.alerts]
    problems = problems_of_rules(found.alerts, brought, bare)
    source = found.source_of("alerts")
    if unfit := [one.below("alerts")._replace(source=source) for one in problems]:
        raise Unfit(*unfit)


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
        told = ", ".join(f"{name}{guess(name, known)} ({place_of((name,))})" for name in unknown)
        hint = f"{SEE}; a feature's settings are known with its application (--app)" if bare else SEE
        raise WrongSetting(f"unknown settings: {told}", hint=hint)
