"""What processes of an experiment see as their environment and working directory."""

from __future__ import annotations

import os
from collections.abc import Mapping

# Settings that may be somebody's own: a fresh store of ours has nothing to do with them.
_SETTINGS = ("REDRIVE", "TASK_", "OUTBOX_", "ELASTIC_", "QUEUE_CONNECTION", "BATCH_", "ENTERPRISE_", "COV_")
# These say what an experiment is not about, also on a store that somebody has configured.
_NEVER = ("REDRIVE_APP", "REDRIVE_METRICS_PORT", "REDRIVE_ALERT_", "TASK_WORKER_", "OUTBOX_", "ELASTIC_", "COV_")


def environment(given: Mapping[str, str], *, fresh: bool) -> dict[str, str]:
    """Returns the environment of a process. ``fresh``: the store was made for this, so nothing of the surrounding
    settings is meant; else what is kept, and for how long, is as it is configured where this runs."""
    foreign = _SETTINGS if fresh else _NEVER
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "REDRIVE_LOG": "json", **given}
