"""Settings: environment first, then ``redrive.toml``, then defaults. Every name is listed in docs/settings.md."""

from redrive.settings.alerts import AlertSettings
from redrive.settings.connections import ALL, DEFAULT_CONNECTION, Route, WorkerGroup
from redrive.settings.declare import FeatureSettings, Setting, fields_of, name_of, setting
from redrive.settings.effective import Effective, effective
from redrive.settings.load import configured_app, database_url_note, load_settings, store_url
from redrive.settings.misspelt import OTHER_NAMES, misspelt
from redrive.settings.options import Options
from redrive.settings.own import DEFAULT_URL, MOST_MS, Settings, Triage, parse_networks
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
