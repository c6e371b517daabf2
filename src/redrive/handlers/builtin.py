"""Kinds every application has, for checks and drills (T17)."""

from __future__ import annotations

from typing import Any

from redrive.handlers.context import Context

HEALTH_CHECK = "SYSTEM_HEALTH_CHECK"
FAIL_ALWAYS = "SYSTEM_FAIL_ALWAYS"


async def health_check(ctx: Context, **_: Any) -> dict[str, Any]:
    """Completes: proof that enqueue, claim, run and settle work."""
    return {"ok": True, "worker": ctx.worker_id}


async def fail_always(ctx: Context, **_: Any) -> None:
    """Fails each time and is retried until its attempts are used up."""
    raise RuntimeError(f"{FAIL_ALWAYS} failed on purpose (attempt {ctx.attempt})")
