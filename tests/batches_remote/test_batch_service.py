"""One face for batches of both sorts: lists, pages and refusals."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from redrive import App, Context
from redrive.batches import BatchService, BatchState
from redrive.batches.app_batch import Batches
from redrive.batches.batch_input import BatchRequest
from redrive.errors import InvalidInput
from redrive.ops.access import Caller, Role
from redrive.webhooks.service import Endpoints
from tests.batches_remote.conftest import ANN, Scripted, made, rich, work
from tests.batches_remote.test_faces import LINES, client_of


async def both(app: App) -> BatchService:
    return (await app.operator(ANN)).of(BatchService)


async def seven(app: App) -> list[UUID]:
    """Makes batches of both sorts in turn; returns their ids, the latest first."""

    @app.task("WORK", max_attempts=1)
    async def handle(ctx: Context, n: int = 0) -> None:
        if n < 0:
            raise ValueError("below zero")

    await rich(app, amount=10_000)
    ids = list[UUID]()
    for number in range(7):
        if number % 2:
            ids.append((await made(app, [{}, {"fail": "model"}], name=f"jobs {number}")).id)
        else:
            ids.append((await app.of(Batches)([handle.new(n=1), handle.new(n=-1)], name=f"tasks {number}")).id)
    return ids[::-1]


async def test_pages_over_both_are_exact(app: App, provider: Scripted) -> None:
    ids, own = await seven(app), await both(app)
    for limit in (1, 2, 3, 7, 8):
        seen, before, pages = list[UUID](), None, 0
        while True:
            page = await own.list(limit=limit, before=before)
            seen += [one.id for one in page.items]
            before, pages = page.next, pages + 1
            if before is None:
                break
        assert seen == ids and pages == -(-7 // limit), "each once, and no page that is empty"
    assert [one.id for one in (await own.list(remote=False)).items] == ids[::2]
    assert [one.id for one in (await own.list(remote=True)).items] == ids[1::2]
    assert [one.id for one in (await own.list(provider="video", account="acme", limit=2)).items] == ids[1:4:2]
    assert (await own.list(account="nobody")).items == []
    assert len((await own.list(state="queued")).items) == 3
    assert await own.unended(100) == 7
    with pytest.raises(InvalidInput, match="no provider"):
        await own.list(remote=False, provider="video")


async def test_counts_are_the_same_before_and_after_the_settlement(app: App, provider: Scripted) -> None:
    ids, own = await seven(app), await both(app)
    before = await own.show(ids[1])
    assert (before.state, before.total, before.pending) == (BatchState.QUEUED, 2, 2)
    await work(app, before)  # type: ignore[arg-type]
    for one in (await own.list()).items:
        assert one == await own.find(one.id)
        assert (one.completed, one.failed, one.pending, one.ended) == (1, 1, 0, True), one.name
    retried = await own.retry_failed(ids[1], "again")
    assert (retried.matched, retried.charge, retried.batch.failed, retried.batch.pending) == (1, 10, 0, 1)
    cancelled = (await own.cancel(ids[1])).batch
    assert (cancelled.completed, cancelled.cancelled, cancelled.state) == (1, 1, BatchState.CANCELLED)
    poor = await made(app, [{}] * 2000, name="too dear")
    await work(app, poor)
    found = await own.show(poor.id)
    assert (found.failed, found.pending, found.state) == (2000, 0, BatchState.FAILED)


async def test_items_are_the_same_documents(app: App, provider: Scripted) -> None:
    ids, own = await seven(app), await both(app)
    pending = await own.items(ids[0], states=["pending"])
    assert [one.state for one in pending.items] == ["pending", "pending"]
    await work(app, await own.show(ids[1]))  # type: ignore[arg-type]
    for batch in ids[:2]:
        first = await own.items(batch, limit=1)
        rest = await own.items(batch, limit=1, after=first.next_after)
        assert {one.state for one in first.items + rest.items} == {"completed", "failed"}
        [failed] = (await own.items(batch, states=["failed"])).items
        assert failed.task_id is not None and failed.error_code is not None and failed.ended_at is not None
        failures = await own.failures(batch)
        [failure_type] = failures.by_type
        assert [cause.failed for cause in failures.causes] == [1]
        assert (await own.items(batch, failure_type=failure_type)).items == [failed]
        assert (await own.items(batch, failure_type="network")).items == []
    with pytest.raises(InvalidInput, match="state of an item"):
        await own.items(ids[0], states=["odd"])
    with pytest.raises(InvalidInput, match="place of an item"):
        await own.items(ids[1], after=str(ids[0]))
    with pytest.raises(InvalidInput, match="of one kind"):
        await own.items(ids[1], kind="WORK")


async def test_what_does_not_go_together_is_named(app: App, provider: Scripted) -> None:
    own = await both(app)
    for wanted, given, told in (
        (BatchRequest(), {}, "neither tasks nor items"),
        (BatchRequest(provider="video"), {"tasks": [], "items": []}, "do not go together"),
        (BatchRequest(), {"items": [1]}, "provider is missing"),
        (BatchRequest(account="acme", price=0), {"tasks": []}, "account, price: only for batches of jobs"),
        (
            BatchRequest(provider="video", on_complete=("X", None)),
            {"items": [1]},
            "on_complete: only for batches of tasks",
        ),
    ):
        with pytest.raises(InvalidInput, match=told):
            await own.create(wanted, **given)
    assert (await own.list()).items == []


async def test_refusals_over_http(app: App, provider: Scripted) -> None:
    async with client_of(app) as client:

        async def refused(**request: Any) -> str:
            answer = await client.post(request.pop("url", "/api/batches"), **request)
            assert answer.status_code == 422, answer.text
            return answer.text

        assert "neither tasks nor items" in await refused(json={"name": "x"})
        assert "webhookUrl: only for" in await refused(json={"tasks": [], "webhookUrl": "https://example.com"})
        assert "tasks.0.kind" in await refused(json={"tasks": [{"payload": 1}]})
        for broken in (b"{", b"\xff", b"[" * 5000, b"[]", b""):
            assert "JSON" in await refused(content=broken) or broken == b"[]"
        assert "?provider=NAME" in await refused(content="{}\n", headers=LINES)
        assert "says this itself" in await refused(url="/api/batches?provider=video", json={"items": [1]})
        assert "meta is no JSON" in await refused(
            url="/api/batches?provider=video&meta={", content="1\n", headers=LINES
        )
        assert (await client.get("/api/batches/remote")).status_code == 422  # no id of a batch
        large = {"provider": "video", "items": ["x" * 1000] * 300}
        assert "application/x-ndjson" in (await client.post("/api/batches", json=large)).text
        assert (await client.get("/api/batches")).json() == {"batches": [], "nextBefore": None}


async def test_viewers_see_numbers_only(app: App, provider: Scripted) -> None:
    url = "https://hooks.example.com/secret-path"
    await (await app.operator(ANN)).of(Endpoints).rotate_account("acme")
    batch = await made(app, [{"token": "secret"}], meta={"a": "secret"}, name="secret", key="secret", webhook_url=url)
    own = (await app.operator(Caller("vic", Role.VIEWER))).of(BatchService)
    [seen] = (await own.list()).items
    assert seen == await own.find(batch.id) and seen.meta is None and "secret" not in repr(seen)
    assert "secret" not in repr(await own.items(batch.id))
