"""What somebody is told about batches without asking."""

from __future__ import annotations

from redrive.kernel.alerts.brought import AlertRule

ALERTS = (
    AlertRule(
        "batches_forgotten",
        "batches that are open, and that nobody adds to any more",
        hold=300,
        fix="redrive doctor names them; redrive batch cancel ID, or wait until they are cancelled by themselves",
    ),
    AlertRule(
        "batches_stuck",
        "remote batches that nothing moves any more",
        hold=300,
        fix="redrive doctor names them, and what to do with each",
    ),
)
