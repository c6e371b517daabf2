"""Secrets, planted wherever a task can carry or say something, are seen by no viewer: on no page, in no export."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from redrive import App, Context, Fail, Retry, Snooze
from redrive.api import make_api
from redrive.batches.settings import BatchSettings
from redrive.observe.logs import TaskLog
from redrive.ops import access
from redrive.ops.access import Role
from redrive.remote.provider import RemoteItem, Status
from redrive.settings import Options, load_settings
from redrive.sync import Portal
from redrive.testing.client import ApiClient
from redrive.webhooks.settings import WebhookSettings
from tests.effort import tries

WINDOW = 6
# No vowels and no hex digits: nothing of it is a word, an id or a fingerprint by chance.
SECRETS = st.text("ghjkmnpqrstvwxz", min_size=14, max_size=24)
FORMS = {
    "plain": lambda s: s,
    "upper": str.upper,
    "quoted": lambda s: repr({"key": s}),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "hex": lambda s: s.encode().hex(),
    "url": lambda s: f"https://user:{quote(s)}@api.example.com/v1?token={s}",
    "wrapped": lambda s: "\n".join(s[n : n + 8] for n in range(0, len(s), 8)),
    "shortened": lambda s: f"{s[:9]}…",
    "glued": lambda s: f"connection{s}refused timeout_{s} {s}-invalid",
    "long": lambda s: "not found " * 600 + s,
}
NAMES = ("ACT", "default")  # of accounts, kinds, queues
FOR_OPERATORS = ("payload", "result", "/ledger/verify", "/search", "/tokens")
WAYS = ("raise", "chain", "key", "number", "fail", "retry", "attribute", "os", "result", "progress", "memo")
SHAPES = st.recursive(
    st.just("SECRET"),
    lambda inner: st.lists(inner, min_size=1, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, min_size=1),
    max_leaves=4,
)


def planted(shape: Any, secret: str) -> Any:
    if isinstance(shape, dict):
        return {key: planted(value, secret) for key, value in shape.items()}
    return [planted(value, secret) for value in shape] if isinstance(shape, list) else secret


def say(form: str, secret: str) -> str:
    return FORMS[form](secret)


async def act(ctx: Context, way: str, form: str, secret: str) -> Any:
    """What handlers do with what they are given."""
    said = say(form, secret)
    ctx.progress(1, 3, note=said)
    if way == "result":
        return {"sent": said, secret: [secret]}
    if way == "memo":
        raise Snooze(3600, state={"at": said})
    if way == "progress":
        ctx.progress({"note": said})
    if way == "chain":
        try:
            raise ValueError(said)
        except ValueError as error:
            raise RuntimeError(f"could not log in as {secret}") from error
    if way == "key":
        return {}[said]
    if way == "number":
        return int(said)
    if way == "fail":
        raise Fail("TASK_PRECONDITION_FAILED", f"no account for {said}")
    if way == "retry":
        raise Retry(f"not yet: {said}")
    if way == "attribute":
        return getattr(object(), secret)
    if way == "os":
        return open(f"/nowhere/{said}"[:200])
    raise ConnectionError(f"login failed: {said} was refused by the server")


class Farm:
    """A provider that repeats what it is given: half of its jobs succeed."""

    def __init__(self) -> None:
        self.jobs: dict[str, Any] = {}

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        self.jobs[idempotency_key] = item.payload
        return idempotency_key

    async def poll(self, ids: Sequence[str]) -> dict[str, Status]:
        return {one: self._status(self.jobs[one]) for one in ids}

    def _status(self, payload: Any) -> Status:
        return Status.succeeded(payload) if payload["good"] else Status.failed(f"it said {payload['token']}")


class World:
    """An application on a store of its own, and a viewer who looks at everything."""

    def __init__(self, url: str) -> None:
        # Nobody listens on that port of this machine: what is sent there fails.
        own = WebhookSettings(allow_networks=["127.0.0.0/8"], retries=0), BatchSettings(poll_first=0.0)
        self.app = App(settings=load_settings(url=url).holding(*own))
        self.app.provider("farm", Farm())
        self.portal, self.log = Portal(), io.StringIO()
        self.given: list[str] = []
        self.planted = 0
        routes = [one for one in make_api(self.app).routes if isinstance(one, APIRoute) and one.include_in_schema]
        self.paths = sorted({one.path for one in routes if "GET" in one.methods})

        @self.app.task("ACT", max_attempts=1, public=("shown",))
        async def handler(ctx: Context, payload: Any) -> Any:
            return await act(ctx, payload["way"], payload["form"], payload["secret"])

        self.app.declare("ELSEWHERE")
        self.portal.call(self.app.store())
        store = self.portal.call(self.app.store())
        self.operator = ApiClient(self.app, self.portal)
        self.viewer = ApiClient(self.app, self.portal)
        for client, role in ((self.operator, Role.ADMIN), (self.viewer, Role.VIEWER)):
            made = self.portal.call(access.create(store, role.label, role, actor="ann"))
            client.headers["authorization"] = f"Bearer {made.secret}"

    def work(self) -> None:
        async def run() -> None:
            options, log = Options(concurrency=5, stop_when_empty=True), TaskLog(self.log, style="json")
            await self.app.worker(await self.app.store(), options, log=log).run()

        self.portal.call(run())

    def plant(self, secret: str, way: str, form: str, shape: Any) -> UUID:
        payload = {
            "way": way,
            "form": form,
            "secret": secret,
            "shown": 7,
            "deep": planted(shape, secret),
            secret: secret,
        }
        self.planted += 1
        key = f"key-{secret}-{self.planted}"
        task = self.portal.call(self.app.enqueue("ACT", payload, scope="scope-1", idempotency_key=key))
        return task.id

    def use_features(self, secret: str) -> None:
        """The same by what comes with redrive: batches, jobs of a provider, money, webhooks."""

        async def use() -> None:
            for name in NAMES:
                await self.app.ledger.open(name)
                await self.app.ledger.credit(name, 5, f"key-{secret}-{name}-{self.planted}", reason=f"for {secret}")
            self.batch = (await self.app.batch([("ELSEWHERE", {"token": secret})], meta={"token": secret})).id
            items = [{"token": secret, "good": good} for good in (True, False)]
            self.remote = (await self.app.remote_batches.create(items, provider="farm", meta={"token": secret})).id
            added = await self.app.webhooks.add(f"http://127.0.0.1:9/{secret}?token={secret}", secret=f"whsec-{secret}")
            sent = await self.app.webhooks.send("order.paid", {"token": secret})
            self.endpoint, self.delivery = added["id"], sent["deliveries"][0]["delivery"]

        self.portal.call(use())

    def outside(self, secret: str, outcome: str) -> None:
        """The same by an executor that is no worker of ours."""
        self.portal.call(self.app.enqueue("ELSEWHERE", {"token": secret}, max_attempts=1))
        [task] = self.operator.post(
            "/api/tasks/claim", {"workerId": "w", "kinds": ["ELSEWHERE"], "queues": ["default"]}
        ).ok()
        assert task["payload"] == {"token": secret}
        path, lease = f"/api/tasks/{task['id']}", {"leaseToken": task["leaseToken"]}
        self.operator.post(f"{path}/heartbeat", {**lease, "progress": {"note": secret}})
        said = {"result": {"x": secret}} if outcome == "completed" else {"errorMessage": f"it said {secret}"}
        self.operator.post(f"{path}/report", {**lease, "outcome": outcome, **said}).ok()

    def pages(self, ids: list[UUID]) -> Iterator[tuple[str, str]]:
        """Everything that can be asked for with GET."""
        groups = self.viewer.get("/api/failure-groups").ok()["groups"]
        operations = self.viewer.get("/api/operations").ok()["operations"]

        def listed(path: str) -> list[str]:
            """Those of a list whose things can be asked for one by one."""
            return [one.get("name") or one["id"] for one in self.viewer.get(path.rpartition("/")[0]).ok()]

        values = {
            "task_id": lambda _: ids,
            "fingerprint": lambda _: [group["fingerprint"] for group in groups],
            "approval": lambda _: [one["id"] for one in self.viewer.get("/api/approvals").ok()["approvals"]],
            "operation": lambda _: [one["id"] for one in operations],
            "name": lambda path: listed(path) if path.startswith(("/api/circuits", "/api/schedules")) else NAMES,
            "worker": listed,
            "batch": lambda _: [self.batch, self.remote],
            "endpoint": lambda _: [self.endpoint],
            "delivery": lambda _: [self.delivery],
            "projection": lambda _: ["search_index_to_elastic"],
        }
        for path in self.paths:
            named = re.findall(r"{(\w+)}", path)
            assert set(named) <= set(values), f"{path} is new: say how it is asked for"
            for value in values[named[0]](path) if named else [""]:
                yield path, re.sub(r"{\w+}", str(value), path)
        for query in ("?state=failed", "?state=completed", "?state=delayed", "?state=cancelled", "?limit=1000"):
            yield "/api/tasks", f"/api/tasks{query}"
        for form in ("json", "csv", "jsonl"):
            yield "export", f"/api/tasks/audit-logs/export?format={form}"

    def look(self, ids: list[UUID]) -> dict[str, str]:
        found = {}
        for name, address in self.pages(ids):
            path, _, query = address.partition("?")
            params = dict(part.split("=") for part in query.split("&")) if query else {}
            if name.endswith("/at"):
                params = {"time": "2026-01-01T00:00:00Z"}
            if name.endswith("/search"):
                params = {"text": "a"}
            answer = self.viewer.get(path, **params)
            assert answer.status in (200, 403) if name.endswith(FOR_OPERATORS) else answer.status == 200, path
            found[address] = answer.text
        return found

    def close(self) -> None:
        self.viewer.close()


def leaks(text: str, secret: str) -> str | None:
    """Any part of it that is long enough to be known again, also encoded."""
    lowered = text.lower()
    for form in (secret, secret[::-1]):
        for start in range(len(form) - WINDOW + 1):
            if form[start : start + WINDOW] in lowered:
                return form[start : start + WINDOW]
    encoded = [
        secret.encode().hex(),
        *(base64.b64encode(b" " * shift + secret.encode()).decode()[4:-4] for shift in range(3)),
    ]
    return next((form for form in encoded if form[:16] in text), None)


def check(world: World, secret: str, way: str, form: str, shape: Any) -> None:
    if not world.planted:
        world.use_features(secret)
    task_id = world.plant(secret, way, form, shape)
    world.work()
    world.outside(secret, "failed")
    world.outside(secret, "completed")
    world.outside(secret, "cancelled")
    shown = world.operator.get(f"/api/tasks/{task_id}").ok()["task"]
    if shown["state"] == "failed":
        # Grouped, retried with a canary, failed again; then by hand: samples, notes and rows of all that.
        filters = {"jobKind": "ACT", "taskIds": [str(task_id)]}
        world.operator.post("/api/tasks/dead-letters/retry", {**filters, "reason": "again"}).ok()
        world.work()
        begun = world.operator.post("/api/operations", {"jobKind": "ACT", "canary": {"first": 1}, "reason": "try"})
        assert begun.status in (202, 409), begun.text
        for _ in range(2):
            world.work()
    pages = world.look([task_id])
    world.given.append(secret)
    for address, text in pages.items():
        for known in world.given:
            found = leaks(text, known)
            assert found is None, f"{address} shows {found!r} of {known!r} ({way}, {form}): …{_around(text, found)}…"
    payload = json.loads(pages[f"/api/tasks/{task_id}"])["task"]["payload"]
    assert payload in (None, {"shown": 7})


def _around(text: str, found: str) -> str:
    at = text.lower().find(found.lower())
    return text[max(at - 200, 0) : at + 100]


# What leaks is named with its page; a smaller secret would say no more, and take minutes to find.
OPTIONS = settings(
    phases=[Phase.generate],
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[World]:
    world = World(f"sqlite:///{tmp_path}/viewers.db?synchronous=normal")
    yield world
    world.close()


@pytest.mark.timeout(600)
@settings(OPTIONS, max_examples=tries(2, 3, 8))
@given(secret=SECRETS, way=st.sampled_from(WAYS), form=st.sampled_from(sorted(FORMS)), shape=SHAPES)
def test_no_page_shows_a_secret(sqlite: World, secret: str, way: str, form: str, shape: Any) -> None:
    check(sqlite, secret, way, form, shape)


@pytest.mark.thorough
def test_every_way_in_every_form(sqlite: World) -> None:
    ids = []
    for number, (way, form) in enumerate((way, form) for way in WAYS for form in sorted(FORMS)):
        secret = "".join("ghjkmnpqrstvwxz"[(number * 7 + n * n * 11 + n * number) % 15] for n in range(18))
        sqlite.given.append(secret)
        if not ids:
            sqlite.use_features(secret)
        ids.append(sqlite.plant(secret, way, form, {"a": ["SECRET"]}))
    sqlite.work()
    for address, text in sqlite.look(ids).items():
        for secret in sqlite.given:
            found = leaks(text, secret)
            assert found is None, f"{address}: {_around(text, found)}"
    # An operator does see them: the test looks at what is there.
    assert all(
        leaks(sqlite.operator.get(f"/api/tasks/{task_id}").text, secret)
        for task_id, secret in zip(ids, sqlite.given, strict=True)
    )


def test_logs_hold_messages_but_not_what_tasks_carry(sqlite: World) -> None:
    """Logs are for operators. Even so, payloads, results, progress and keys are not in them."""
    sqlite.plant("ghjkmnpqrstvwxz", "result", "plain", "SECRET")
    sqlite.plant("zxwvtsrqpnmkjhg", "memo", "plain", "SECRET")
    sqlite.work()
    lines = sqlite.log.getvalue()
    assert "task.completed" in lines
    assert leaks(lines, "ghjkmnpqrstvwxz") is None
