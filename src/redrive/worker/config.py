"""What a worker was told."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from redrive.handlers.functions import body_of
from redrive.handlers.registry import Registry
from redrive.kernel.clean import clean
from redrive.kernel.frames import package_of
from redrive.settings import DEFAULT_CONNECTION, Options, Settings

if TYPE_CHECKING:
    from redrive.observe.tracing import Tracing

MAX_BUILD = 200


@dataclass(slots=True, frozen=True)
class WorkerConfig:
    """Under which name a worker runs which handlers, by which settings and options. ``where``: its store, as the log
    calls it; ``connection``: the name of that. ``tracing``: None where nothing is traced."""

    id: str
    registry: Registry
    settings: Settings
    options: Options
    where: str = "its store"
    connection: str = DEFAULT_CONNECTION
    tracing: Tracing | None = None


def build_of(settings: Settings, registry: Registry) -> str | None:
    """Returns which build of the application this is: as the settings say, else the version of the package that its
    handlers are in; None for a script without one."""
    if settings.build is not None:
        return settings.build
    modules = (getattr(body_of(handler.function), "__module__", None) for handler in registry.handlers.values())
    for package in dict.fromkeys(package_of(module) for module in modules):
        if package is not None and (found := _version(package)) is not None:
            return found
    return None


def _version(package: str) -> str | None:
    own = getattr(sys.modules.get(package), "__version__", None)
    try:
        found = own if isinstance(own, str) and own else version(package)
    except PackageNotFoundError:
        return None
    return clean(found)[:MAX_BUILD] or None


def worker_id(settings: Settings) -> str:
    """Returns the name that the settings give, else one that no other process has."""
    return settings.worker_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
