"""Loads what is installed only by those who want it: spans and Sentry. A missing package is said with its remedy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from redrive.errors import ConfigError


def load_extra(module: str, setting: str, package: str, extra: str) -> Any:
    """Returns the module that a setting asks for; ``extra`` is what has to be installed for it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{setting} needs {package}, which is not installed ({error.name} is missing)",
            hint=f"pip install '/path/to/checkout[{extra}]', or {setting.partition('=')[0]}=off",
        ) from error
