"""The settings for operating: what needs a second person, what viewers see, where the audit log goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from redrive.kernel.alerts.thresholds import Limits
from redrive.kernel.backoff import Backoff
from redrive.ops.allowance import Rule
from redrive.settings import Settings, Triage


@dataclass(slots=True, frozen=True)
class Policy:
    """Rules of operating. ``approvals_above`` None: nothing has to be approved. What one person did within
    ``approvals_window`` counts."""

    approvals_above: int | None = 1000
    approvals_window: timedelta = timedelta(hours=1)
    public_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    audit_archive: str | None = None
    backoff: Backoff = field(default_factory=Backoff)
    triage: Mapping[str, Triage] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)  # of alerts
    settings: Settings | None = None  # those that this was made of

    @property
    def alone(self) -> Rule:
        """What one operator may do without a second one."""
        return Rule(self.approvals_above, self.approvals_window)

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        return cls(
            approvals_above=settings.approved_above,
            approvals_window=timedelta(minutes=settings.approvals_window_minutes),
            public_fields={kind: tuple(names) for kind, names in settings.public_fields.items()},
            audit_archive=settings.audit_archive,
            backoff=settings.backoff,
            triage=settings.triage,
            limits=settings.alerts.limits,
            settings=settings,
        )
