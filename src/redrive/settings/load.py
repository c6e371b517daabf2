"""Loads the settings of a process, refuses what cannot be used, and lists what is in effect."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redrive.errors import WrongSetting
from redrive.features import installed
from redrive.settings.core import Settings
from redrive.settings.declare import Values, fields_by_name, fields_of, name_of, names_of
from redrive.settings.rules import ALIKE, problems_of_rules
from redrive.settings.sources import OURS, SEE, explained, guess, place_of, read_file
from redrive.settings.values import Unfit

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature

# Read elsewhere, or set by redrive itself for its own processes.
OTHER_NAMES = {
    "REDRIVE_CONFIG",
    "REDRIVE_ACTOR",
    "REDRIVE_DEV",
    "REDRIVE_METRICS_PIPE",
    "REDRIVE_SUPERVISED",
    "REDRIVE_TOKEN",
}
# How much like a setting a name is that is taken for it misspelt, where others may have names of their own.
NEARLY = 0.9
DATABASE_URL = "DATABASE_URL"
_KNOWN_STORES = re.compile(r"(sqlite|postgres|postgresql)(\+\w+)?://", re.IGNORECASE)


def load_settings(*, features: Iterable[Feature] | None = None, bare: bool = False, **given: Any) -> Settings:
    """Returns the settings with explicit values on top; None means "not given". ``features`` are those whose settings
    belong to it, all installed ones unless said otherwise. ``bare``: no application says which there are, so that the
    file may have tables of others."""
    present = tuple(installed() if features is None else features)
    _check_file(present, bare)  # first: what is misspelt is missing elsewhere
    explicit = {name: value for name, value in given.items() if value is not None}
    found = _with_database_url(explained(Settings, lambda: Settings(**explicit), _in_file))
    explained(Settings, lambda: _check_rules(found, present, bare), _in_file)
    return found.with_features(present)


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
    from_file = next((file[key] for key in (one.name.lower(), one.field) if key in file), None)
    name: str | None = explained(Settings, lambda: one.read(os.environ.get(one.name) or from_file), _in_file)
    return name


def store_url(settings: Settings) -> str:
    """Returns where the default connection is. Refuses one that is configured without."""
    return explained(Settings, settings.needed_url, _in_file)


def _in_file(field: str, *below: str) -> str:
    return place_of((field, *below), (name_of(Settings, field).lower(), *below))


def _check_rules(found: Settings, features: Iterable[Feature], bare: bool) -> None:
    """Refuses what is said about alerts that no feature brings, and that are not ours."""
    of_features = [rule.name for feature in features for rule in feature.alerts]
    problems = problems_of_rules(found.alerts, of_features, bare)
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
        listed = ", ".join(f"{name}{guess(name, known)} ({place_of((name,))})" for name in unknown)
        hint = f"{SEE}; a feature's settings are known with its application (--app)" if bare else SEE
        raise WrongSetting(f"unknown settings: {listed}", hint=hint)


# -- settings that there are not ---------------------------------------------------------------------------------------


def misspelt(features: Iterable[Feature] | None = None) -> list[str]:
    """Returns what to say about each of them. ``features``: those of the application; all installed ones unless said
    otherwise."""
    of_features = _names(installed() if features is None else features)
    own = {*names_of(Settings), *OTHER_NAMES}
    wrong = sorted(name for name in os.environ if name not in own | of_features and _looks_like_one(name, of_features))
    return [f"{name} is set and is no setting of redrive; {_suggestion(name, own | of_features)}" for name in wrong]


def _names(features: Iterable[Feature]) -> set[str]:
    return {name for feature in features if feature.settings is not None for name in names_of(feature.settings)}


def _looks_like_one(name: str, others: Collection[str]) -> bool:
    """Returns whether it begins as only ours do, or is nearly one of the others: other programs have an outbox and
    orders of their own."""
    if name.startswith(OURS):
        return not name.startswith("REDRIVE_TEST_")
    same = [other for other in others if other.partition("_")[0] == name.partition("_")[0]]
    return bool(difflib.get_close_matches(name, same, 1, NEARLY))


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = next(iter(difflib.get_close_matches(name, known, 1)), None)
    return f"did you mean {close}?" if close else "redrive settings lists those there are"


# -- what is in effect -------------------------------------------------------------------------------------------------


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
        text = _text(value) if one.repr or value is None or value == one.default else None
        used = _used(settings, field)
        if used is None or used == value:
            yield Effective(one.name, text, settings.source_of(field), default, feature)
        else:
            given = None if value is None else text
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
