"""Loads what is installed only by those who want it: spans and Sentry. A missing package is said with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.errors import ConfigError
from redrive.handlers.events import TaskEvent

if TYPE_CHECKING:
    from redrive.observe.tracing import Tracing


def load_sentry(wanted: str) -> Callable[[TaskEvent], None]:
    """Returns the hook that sends failures to Sentry."""
    try:
        from redrive.integrations.sentry import capture, warn_if_deaf
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"REDRIVE_SENTRY={wanted} needs sentry-sdk, which is not installed ({error.name} is missing)",
            hint="pip install '/path/to/checkout[sentry]', or REDRIVE_SENTRY=off",
        ) from error
    warn_if_deaf()
    return capture


def load_tracing(wanted: str) -> Tracing | None:
    """Returns what makes spans; None, and nothing imported, where nothing is traced."""
    if wanted == "off":
        return None
    try:
        from redrive.observe.tracing import Tracing
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"REDRIVE_TRACING={wanted} needs OpenTelemetry, which is not installed ({error.name} is missing)",
            hint="pip install '/path/to/checkout[otel]', or REDRIVE_TRACING=off",
        ) from error
    return Tracing(calls=wanted == "all")
