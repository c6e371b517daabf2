"""Settings: environment first, then ``redrive.toml``, then defaults. Every name is listed in docs/settings.md.

A setting is declared once (``core.py``, or a feature's class): its name, type, limits and default, from which reading,
errors, ``redrive settings`` and the options of ``redrive work`` follow. pydantic-settings would replace what reads
types (``values.py``, half of ``declare.py``: some 350 lines), not the line of the file in an error, where each value
comes from, tables of features or names that are nearly right; and each process that makes an App would import Pydantic
for it: 6.5 MB and 0.13 s of CPU before its first model, where all settings are read in a few milliseconds.
"""

from redrive.settings.connections import ALL, DEFAULT_CONNECTION, Options, Route, WorkerGroup
from redrive.settings.core import DEFAULT_URL, MOST_MS, Settings, Triage, parse_networks
from redrive.settings.declare import FeatureSettings, Setting, fields_of, name_of, setting
from redrive.settings.load import (
    OTHER_NAMES,
    Effective,
    configured_app,
    database_url_note,
    effective,
    load_settings,
    misspelt,
    store_url,
)
from redrive.settings.rules import AlertSettings
from redrive.settings.values import Unfit

__all__ = [
    "ALL",
    "DEFAULT_CONNECTION",
    "DEFAULT_URL",
    "MOST_MS",
    "OTHER_NAMES",
    "AlertSettings",
    "Effective",
    "FeatureSettings",
    "Options",
    "Route",
    "Setting",
    "Settings",
    "Triage",
    "Unfit",
    "WorkerGroup",
    "configured_app",
    "database_url_note",
    "effective",
    "fields_of",
    "load_settings",
    "misspelt",
    "name_of",
    "parse_networks",
    "setting",
    "store_url",
]
