"""What a worker was told."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.handlers.registry import Registry
from redrive.settings import DEFAULT_CONNECTION, Options, Settings

if TYPE_CHECKING:
    from redrive.observe.tracing import Tracing


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


def worker_id(settings: Settings) -> str:
    """Returns the name that the settings give, else one that no other process has."""
    return settings.worker_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
