"""The example: shots of a film on their way through production.

    redrive up --app redrive_kit.examples.shots:app --demo

Each kind shows one thing that tasks do: succeed, change a row together with their completion, retry, fail for good,
report progress, run by the clock, run in bulk, run as plain blocking code.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Literal

from redrive import App, Bulk, Context, Fail, Task

app = App(name="shots")

# Handled by a render farm somewhere else. A worker that finds no handler fails it: TASK_PAYLOAD_UNSUPPORTED.
app.declare("VIDEO_GEN", max_attempts=3)

SET_STATUS = "insert into shot (id, status) values ($1, $2) on conflict (id) do update set status = excluded.status"
Status = Literal["draft", "rendering", "review", "done"]
TRY = (
    """SHOT_SET_STATUS '{"shot_id": "s-17", "status": "done"}'""",
    """SHOT_RENDER '{"shot_id": "s-17", "frames": 240}'""",
)


@app.task("SHOT_SET_STATUS")
async def set_status(ctx: Context, shot_id: str, status: Status) -> None:
    """The row and the task's completion are one commit: neither is there without the other."""
    async with ctx.transaction() as tx:
        await _ensure_table(tx)
        await tx.execute(_sql(SET_STATUS), shot_id, status)


@app.task("SHOT_STATUS")
async def status_of(ctx: Context, shot_id: str) -> None:
    """Reads what SHOT_SET_STATUS wrote; what is set as ``result`` is stored with the completion."""
    transaction = ctx.transaction()
    async with transaction as tx:
        await _ensure_table(tx)
        rows = await tx.fetch(_sql("select status from shot where id = $1"), shot_id)
        transaction.result = rows[0]["status"] if rows else None


@app.task("SHOT_UPLOAD", max_attempts=5, backoff_base=1)
async def upload(ctx: Context, shot_id: str) -> str:
    """Fails twice as networks do, then works: connection errors are retried with backoff."""
    if ctx.attempt < 3:
        raise ConnectionError(f"the storage did not answer (attempt {ctx.attempt})")
    return f"https://storage.example/{shot_id}"


@app.task("SHOT_PUBLISH")
async def publish(ctx: Context, shot_id: str) -> None:
    """Fails for good: no retry would help, so it becomes a dead letter with a code of its own."""
    raise Fail("SHOT_RIGHTS_MISSING", f"nobody cleared the rights of {shot_id}")


@app.task("SHOT_RENDER", timeout=300, concurrency=2)
async def render(ctx: Context, shot_id: str, frames: int = 100) -> dict[str, int]:
    """Slow, and says how far it is; two at once in the whole fleet. Cancel it and it stops."""
    for frame in range(frames):
        await asyncio.sleep(0.1)
        ctx.progress(frame + 1, frames, note=shot_id)
    return {"frames": frames}


@app.task("SHOT_INDEX", bulk=100)
async def index(bulk: Bulk) -> None:
    """Up to a hundred at a time, answered one by one."""
    for item in bulk:
        item.answer({"indexed": item.payload})


@app.task("SHOT_CHECKSUM")
def checksum(ctx: Context, text: str) -> str:
    """Plain blocking code runs in a thread."""
    return hashlib.sha256(text.encode()).hexdigest()


@app.task("SHOT_HEARTBEAT", max_attempts=1)
async def heartbeat(ctx: Context) -> None:
    """Each minute, once across the fleet."""
    ctx.log.info("the studio is open")


app.periodic("SHOT_HEARTBEAT", cron="* * * * *")


async def demo() -> list[Task]:
    """A few tasks to look at. The keys make a second start find them instead of adding more."""
    shots = [f"s-{n}" for n in range(1, 4)]
    tasks = [
        *(("SHOT_SET_STATUS", {"shot_id": shot, "status": "rendering"}) for shot in shots),
        *(("SHOT_INDEX", {"shot_id": shot}) for shot in shots),
        ("SHOT_UPLOAD", {"shot_id": "s-1"}),
        ("SHOT_PUBLISH", {"shot_id": "s-2"}),
        ("SHOT_RENDER", {"shot_id": "s-3"}),
        ("SHOT_CHECKSUM", {"text": "s-1"}),
        ("VIDEO_GEN", {"shot_id": "s-1"}),
    ]
    return await app.enqueue_many(
        [
            {"kind": kind, "payload": payload, "group": "demo", "idempotency_key": f"demo-{number}"}
            for number, (kind, payload) in enumerate(tasks, 1)
        ]
    )


async def _ensure_table(tx: Any) -> None:
    """On PostgreSQL two that create it at once collide, even with "if not exists": the second waits for the first."""
    if not _sqlite():
        [found] = await tx.fetch("select to_regclass('shot') is not null as there")
        if found["there"]:
            return
        await tx.execute("select pg_advisory_xact_lock(hashtext('redrive_kit.examples.shots'))")
    await tx.execute("create table if not exists shot (id text primary key, status text not null)")


def _sql(text: str) -> str:
    """PostgreSQL numbers its parameters $1, SQLite ?1."""
    return text.replace("$", "?") if _sqlite() else text


def _sqlite() -> bool:
    return app.url.startswith("sqlite")
