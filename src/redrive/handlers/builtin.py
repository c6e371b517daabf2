"""Defines the kinds that every application has, for checks and drills."""

from __future__ import annotations

from typing import Any

from redrive.handlers.context import Context
from redrive.kernel.outcome import Fail

HEALTH_CHECK = "SYSTEM_HEALTH_CHECK"
FAIL_ALWAYS = "SYSTEM_FAIL_ALWAYS"
DRILL = "SYSTEM_DRILL"


async def health_check(ctx: Context, **_: Any) -> dict[str, Any]:
    """Completes: proof that enqueue, claim, run and settle work."""
    return {"ok": True, "worker": ctx.worker_id}


async def fail_always(ctx: Context, **_: Any) -> None:
    """Fails each time and is retried until its attempts are used up."""
    raise RuntimeError(f"{FAIL_ALWAYS} failed on purpose (attempt {ctx.attempt})")


async def drill(ctx: Context, drill_id: str) -> dict[str, Any]:
    """Fails for good until somebody retries it, then completes: what an operator practises on."""
    if ctx.task.replay_count == 0:
        raise Fail("TASK_PRECONDITION_FAILED", f"drill {drill_id}: failed on purpose, retry me")
    return {"drill_id": drill_id, "effect": "done", "replays": ctx.task.replay_count}
