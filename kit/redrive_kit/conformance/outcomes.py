"""Every way an attempt can end, by name."""

from __future__ import annotations

from redrive.kernel.outcome import Cancel, Completed, Outcome, Released, Retry, Snooze
from redrive.kernel.task import State
from redrive_kit.conformance.harness import TERMINAL, failing

SETTLED: dict[str, tuple[Outcome, State]] = {
    "complete": (Completed('{"ok":true}'), State.COMPLETED),
    "fail": (TERMINAL, State.FAILED),
    "retry": (failing(), State.DELAYED),
    "retry-at-once": (Retry("again", after=0), State.QUEUED),
    "snooze": (Snooze(30, state={"page": 2}), State.DELAYED),
    "snooze-at-once": (Snooze(0), State.QUEUED),
    "release": (Released(), State.QUEUED),
    "cancel": (Cancel("not wanted"), State.CANCELLED),
}
REQUEUED = ("retry", "retry-at-once", "snooze", "snooze-at-once", "release")
