"""What the settings say about operating: what needs a second person, what viewers see, where the audit log goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redrive.kernel.backoff import Backoff
from redrive.settings import Settings, Triage


@dataclass(slots=True, frozen=True)
class Policy:
    """``approvals_above`` None: nothing has to be approved."""

    approvals_above: int | None = 1000
    mask_fields: tuple[str, ...] = ()
    audit_archive: str | None = None
    backoff: Backoff = field(default_factory=Backoff)
    triage: Mapping[str, Triage] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        return cls(
            approvals_above=settings.approved_above,
            mask_fields=tuple(settings.mask_fields),
            audit_archive=settings.audit_archive,
            backoff=settings.backoff,
            triage=settings.triage,
        )
