"""Causes of failure, audit log, tokens, and why a task does not run."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from redrive.errors import CauseUnknown, InvalidInput, InvalidTransition, StoreUnavailable
from redrive.kernel.audit import Audit, AuditFilter
from redrive.kernel.commit import Commit, Target
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.outcome import Fail, Failed
from redrive.kernel.ports.store import Heartbeat
from redrive.ops import access, audit, audit_rows, causes, executor
from redrive.ops.access import Role
from redrive.ops.allowance import Rule
from redrive.ops.operations import lifecycle
from redrive.ops.why import why
from redrive_kit.conformance.harness import TERMINAL, Harness, failing
from tests.ops.making import OTHER, fail, held, run
from tests.ops.test_operator import operator


async def fold(harness: Harness) -> None:
    while await harness.store.upkeep("fold"):
        pass


class TestGroups:
    async def test_causes_with_their_tasks_kinds_and_trend(self, harness: Harness) -> None:
        await fail(harness, 3)
        await fail(harness, 2, TERMINAL, "B")
        await fail(harness, 1, OTHER)
        await fold(harness)
        locked, latest = (await causes.list_causes(harness.store)).causes
        assert (latest.row.code, latest.failed) == ("TASK_PAYLOAD_INVALID", 1)
        assert (locked.row.count, locked.failed, locked.kinds, locked.status) == (5, 5, {"A": 3, "B": 2}, "open")
        assert sum(locked.trend) == 5 and len(locked.trend) == 24
        assert locked.row.sample_task is not None

    async def test_causes_of_a_filter(self, harness: Harness) -> None:
        own = operator(harness)
        await fail(harness, 3, scope="s1")
        await fail(harness, 2, OTHER, "B", queue="mail")
        await fail(harness, 1, OTHER, scope="s1")

        async def told(**which: Any) -> list[tuple[int, dict[str, int]]]:
            return [(one.failed, one.kinds) for one in (await own.causes.list(FailureFilter(**which))).causes]

        for _ in range(2):  # also of what is folded
            assert await told(kind="B") == [(2, {"B": 2})]
            assert await told(kind="A") == [(3, {"A": 3}), (1, {"A": 1})]
            assert [failed for failed, _ in await told(scope="s1")] == [3, 1]
            assert await told(scope="s1", queue="mail") == []
            await fold(harness)
        first = await own.causes.list(FailureFilter(kind="A"), limit=1)
        assert (first.total, first.more, first.tasks, first.causes[0].share) == (2, 1, 4, 0.75)
        last = await own.causes.list(FailureFilter(kind="A"), limit=1, before=first.next_before)
        ((other,), (latest,)), rest = (first.causes, last.causes), (last.more, last.next_before)
        assert rest == (0, None) and latest.row.fingerprint != other.row.fingerprint
        assert await told(fingerprint=other.row.fingerprint[:8], kind="A") == [(3, {"A": 3})]
        await own.causes.annotate(other.row.fingerprint, resolved=True)
        (known,) = (await own.causes.list(FailureFilter(scope="s1"), status="resolved")).causes
        assert known.row.fingerprint == other.row.fingerprint
        found = await own.failures.search("TASK", FailureFilter(kind="B"))
        assert [one.row.fingerprint for one in found.causes] == [latest.row.fingerprint]

    async def test_those_by_which_most_are_failed_are_listed_first(self, harness: Harness) -> None:
        """Also where they were not seen for long; those by which none is are asked for by their status."""
        quiet = await fail(harness, 4, Fail("QUIET", "x"))
        await operator(harness).failures.retry(quiet)
        await run(harness)
        await fail(harness, 9, Fail("BIG", "x"), "B")
        for n in range(12):
            await harness.advance(1)
            await fail(harness, 1 + n % 3, Fail(f"C{n}", "x"))

        async def told(**asked: Any) -> tuple[list[str], list[int | None]]:
            codes, left, place = [], [], None
            while True:
                page = await causes.list_causes(harness.store, limit=5, before=place, **asked)
                codes += [one.row.code for one in page.causes]
                left.append(page.more)
                place = page.next_before
                if place is None:
                    return codes, left

        by_time = [f"C{n}" for n in range(11, -1, -1)]
        for _ in range(2):  # also of what is folded
            codes, left = await told()
            assert codes[0] == "BIG" and set(codes) == {"BIG", *by_time} and left == [8, 3, 0]
            assert [int(code[1:]) % 3 for code in codes[1:]] == [2] * 4 + [1] * 4 + [0] * 4
            assert await told(order="last") == ([*by_time, "BIG"], [8, 3, 0])
            assert await told(order="first") == ([*by_time, "BIG"], [8, 3, 0])
            assert (await told(order="count"))[0][0] == (await told(order="trend"))[0][0] == "BIG"
            assert (await told(status="all"))[0] == [*codes, "QUIET"]
            assert (await told(status="all", order="last"))[0] == [*by_time, "BIG", "QUIET"]
            assert (await told(status="all", order="count"))[0][:2] == ["BIG", "QUIET"]
            assert (await told(status="quiet"))[0] == (await told(status="quiet", order="count"))[0] == ["QUIET"]
            assert (await told(which=FailureFilter(kind="A")))[0] == codes[1:]
            assert (await told(which=FailureFilter(kind="A"), order="last"))[0] == by_time
            await fold(harness)
        page = await causes.list_causes(harness.store, limit=1)
        assert (page.tasks, page.total, page.causes[0].share) == (33, 13, 9 / 33)
        await causes.annotate(harness.store, page.causes[0].row.fingerprint, actor="ann", resolved=True)
        page = await causes.list_causes(harness.store, limit=5, status="open")
        assert (page.total, page.more, page.causes[0].row.code) == (12, 7, codes[1])
        for asked, wrong in (({"order": "size"}, "not ordered"), ({"before": "x"}, "no place")):
            with pytest.raises(InvalidInput, match=wrong):
                await causes.list_causes(harness.store, **asked)

    async def test_broken_down_by_peer_scope_group_and_build(self, harness: Harness) -> None:
        await harness.tick("w1")
        await harness.store.note_build("w1", "build 7")

        def by(peer: str | None) -> Failed:
            return Failed(replace(failing().failure, peer=peer, retryable=False))

        await fail(harness, 2, by("10.0.0.7:80"), scope="s1", group="g")
        await fail(harness, 1, by("10.0.0.8:80"), scope="s2")
        await fail(harness, 1, by(None))
        [cause] = (await operator(harness).causes.list()).causes
        found = await operator(harness).causes.break_down(cause.row.fingerprint)
        assert found.parts == {
            "peer": {"10.0.0.7:80": 2, "10.0.0.8:80": 1},
            "scope": {"s1": 2, "s2": 1},
            "group": {"g": 2},
            "build": {"build 7": 4},
        }
        assert (found.tasks, found.at_least) == (4, False)
        seen = await operator(harness, role=Role.VIEWER).causes.break_down(cause.row.fingerprint)
        assert (seen.peer, seen.scope) == ({}, found.scope)
        [worker] = (await harness.store.overview()).workers
        assert worker.build == "build 7"

    async def test_a_cause_by_older_rules_keeps_what_was_said_of_it(self, harness: Harness) -> None:
        """Two causes by an earlier version that show the same: one that somebody spoke of, one that nobody did."""

        def by(fingerprint: str) -> Failed:
            return Failed(replace(failing().failure, fingerprint=fingerprint, retryable=False))

        for name in ("2spoken", "2silent"):
            await fail(harness, 1, by(name))
        own, until = operator(harness), await harness.store.now() + timedelta(hours=1)
        await own.causes.annotate("2spoken", None, note="the old rack", owner="bob", muted_until=until)
        for _ in range(2):
            await fold(harness)
            await fail(harness, 2, by("4new"))
        found = {one.row.fingerprint: one for one in (await own.causes.list(status="all")).causes}
        assert set(found) == {"2spoken", "2silent"}, "no cause is new"
        cause = found["2spoken"]
        assert (cause.note, cause.owner, cause.status, cause.failed) == ("the old rack", "bob", "muted", 1 + 2 * 2)
        assert (await own.causes.get("4new")).row.fingerprint == "2spoken"
        await harness.check_totals()

    async def test_resolved_until_it_comes_back(self, harness: Harness) -> None:
        await fail(harness)
        (cause,) = (await causes.list_causes(harness.store)).causes
        name = cause.row.fingerprint
        done = await causes.annotate(harness.store, name, actor="ann", reason="deployed", resolved=True)
        assert (done.status, done.resolved_by) == ("resolved", "ann")
        assert (await causes.list_causes(harness.store, status="open")).causes == []
        await harness.advance(1)
        await fail(harness)
        assert (await causes.show(harness.store, name)).status == "reopened"
        again = await causes.annotate(harness.store, name, actor="ann", resolved=False)
        assert (again.status, again.resolved_at) == ("open", None)
        assert [row.action for row in await harness.audit(actor="ann")] == ["CAUSE_REOPEN", "CAUSE_RESOLVE"]

    async def test_note_owner_and_silence(self, harness: Harness) -> None:
        await fail(harness)
        (cause,) = (await causes.list_causes(harness.store)).causes
        name, now = cause.row.fingerprint, await harness.store.now()
        await causes.annotate(harness.store, name, actor="ann", note="the bucket", owner="bob")
        until = now + timedelta(hours=1)
        muted = await causes.annotate(harness.store, name, actor="ann", muted_until=until)
        assert (muted.status, muted.note, muted.owner, muted.muted_until) == ("muted", "the bucket", "bob", until)
        assert replace(muted, now=until).status == "open"
        with pytest.raises(InvalidInput, match="in the past"):
            await causes.annotate(harness.store, name, actor="ann", muted_until=now - timedelta(days=1))
        with pytest.raises(InvalidInput, match="say what"):
            await causes.annotate(harness.store, name, actor="ann")
        with pytest.raises(CauseUnknown):
            await causes.show(harness.store, "nonsense")
        with pytest.raises(InvalidInput, match="no state"):
            await causes.list_causes(harness.store, status="odd")


class TestAuditLog:
    async def some(self, harness: Harness, number: int) -> None:
        rows = [Audit("ann" if n % 2 else "bob", "NOTE", f"reason {n}") for n in range(number)]
        await harness.store.apply(Commit(audits=rows))

    async def test_pages(self, harness: Harness) -> None:
        await self.some(harness, 7)
        pages = [await audit.query(harness.store, page=n, page_size=3) for n in (1, 2, 3)]
        assert [row.reason for page in pages for row in page.rows] == [f"reason {n}" for n in range(6, -1, -1)]
        assert [page.more for page in pages] == [True, True, False]
        following = await audit.query(harness.store, page_size=3, before=pages[0].next_before)
        assert following.rows == pages[1].rows
        (page,) = [await audit.query(harness.store, AuditFilter(actor="ann"))]
        assert {row.actor for row in page.rows} == {"ann"}

    @pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
    async def test_exports_are_whole_and_harmless(
        self, harness: Harness, form: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(audit, "ROWS_PER_READ", 2)
        hostile = ["=1+1", "+cmd", "-2", "@sum", 'a,b"c', "ünï", "plain"]
        await harness.store.apply(Commit(audits=[Audit("ann", "NOTE", text, after={"x": [1]}) for text in hostile]))
        text = "".join([piece async for piece in audit.export(harness.store, AuditFilter(), form)])
        if form == "json":
            found = [row["reason"] for row in json.loads(text)]
        elif form == "jsonl":
            found = [json.loads(line)["reason"] for line in text.splitlines()]
        else:
            rows = list(csv.DictReader(io.StringIO(text)))
            assert rows[0]["after"] == '{"x": [1]}'
            found = [row["reason"] for row in rows]
            assert found[:4] == ["'=1+1", "'+cmd", "'-2", "'@sum"]
            found = [cell.removeprefix("'") for cell in found]
        assert found == hostile

    async def test_an_empty_export(self, harness: Harness) -> None:
        assert json.loads("".join([p async for p in audit.export(harness.store, AuditFilter(), "json")])) == []
        with pytest.raises(InvalidInput, match="no format"):
            [p async for p in audit.export(harness.store, AuditFilter(), "xml")]

    async def test_pruned_with_a_word_about_it(self, harness: Harness) -> None:
        await self.some(harness, 5)
        await harness.advance(86_400 * 10)
        await self.some(harness, 2)
        told = await audit.prune(harness.store, older_than_days=5, actor="cy", dry_run=True)
        assert (told.matched, told.removed) == (5, 0)
        assert len(await harness.audit()) == 7
        done = await audit.prune(harness.store, AuditFilter(actor="bob"), older_than_days=5, actor="cy", piece=2)
        assert done.removed == 3
        rows = await harness.audit(action="TASK_AUDIT_PRUNE_SUMMARY")
        assert [row.after["removed"] for row in rows] == [1, 2]
        assert {row.bulk_id for row in rows} == {done.batch_id}
        assert len(await harness.audit(actor="ann")) == 3
        with pytest.raises(InvalidInput, match="olderThanDays"):
            await audit.prune(harness.store, older_than_days=-1, actor="cy")

    async def test_two_who_prune_at_once_count_each_row_once(self, harness: Harness) -> None:
        await self.some(harness, 6)
        await harness.advance(86_400)
        other = await harness.another()
        await other.open()
        done = await asyncio.gather(
            *(
                audit.prune(store, older_than_days=0.5, actor=name)
                for store, name in ((harness.store, "a"), (other, "b"))
            )
        )
        assert sum(one.removed for one in done) == 6
        rows = await harness.audit(action="TASK_AUDIT_PRUNE_SUMMARY")
        assert sum(row.after["removed"] for row in rows) == 6

    async def test_retention_is_silent_when_there_is_nothing_to_do(self, harness: Harness) -> None:
        await self.some(harness, 3)
        await audit.retain(harness.store, 30, 500, lambda: False)
        assert len(await harness.audit()) == 3
        await harness.advance(86_400 * 31)
        await audit.retain(harness.store, 30, 500, lambda: False)
        (row,) = await harness.audit()
        assert (row.actor, row.after["removed"]) == ("redrive:retention", 3)

    def test_ranges(self) -> None:
        assert audit_rows.ranges([1, 2, 3, 5, 7, 8]) == "1-3,5,7-8"
        assert audit_rows.ranges([]) == ""


class TestTokens:
    async def test_a_token_is_who_it_was_made_for(self, harness: Harness) -> None:
        made = await access.create(harness.store, "ann", Role.OPERATOR, actor="root")
        caller = await access.check(harness.store, made.secret)
        assert caller is not None and (caller.name, caller.role) == ("ann", Role.OPERATOR)
        assert made.secret not in json.dumps([record.body for record in await access.list_tokens(harness.store)])
        for wrong in ("", "x", made.secret + "x", made.secret[:-1], "rdt_000000000000_abc", "rdt__", "ü" * 80):
            assert await access.check(harness.store, wrong) is None
        (row,) = await harness.audit()
        assert (row.action, row.after["name"]) == ("TOKEN_CREATE", "ann")
        assert made.secret.rsplit("_", 1)[1] not in json.dumps(row.after)

    async def test_revoked_and_expired_ones_are_worthless(self, harness: Harness) -> None:
        made = await access.create(harness.store, "ann", Role.ADMIN, actor="root")
        short = await access.create(harness.store, "bob", Role.VIEWER, actor="root", days=1)
        await access.revoke(harness.store, made.record.id, actor="root")
        assert await access.check(harness.store, made.secret) is None
        with pytest.raises(InvalidTransition, match="revoked already"):
            await access.revoke(harness.store, made.record.id, actor="root")
        assert await access.check(harness.store, short.secret) is not None
        await harness.advance(86_400)
        assert await access.check(harness.store, short.secret) is None

    async def test_names_are_unique_and_roles_known(self, harness: Harness) -> None:
        await access.create(harness.store, "ann", Role.ADMIN, actor="root")
        with pytest.raises(InvalidInput, match="active token named"):
            await access.create(harness.store, "ann", Role.VIEWER, actor="root")
        with pytest.raises(InvalidInput, match="no role"):
            access.parse_role("god")


class TestWhy:
    async def codes(self, harness: Harness, task_id: object) -> list[str]:
        return [reason.code for reason in await why(harness.store, await harness.task(task_id))]  # type: ignore[arg-type]

    async def test_nobody_serves_it(self, harness: Harness) -> None:
        task_id = await harness.enqueue(queue="reports")
        assert await self.codes(harness, task_id) == ["no_worker"]
        await harness.tick("w1")
        (reason,) = await why(harness.store, await harness.task(task_id))
        assert reason.text == "no live worker serves queue reports; live workers serve default"
        assert reason.fix == "redrive work --app module:app --queue reports"

    async def test_ready(self, harness: Harness) -> None:
        await harness.tick("w1")
        task_id = await harness.enqueue()
        assert await self.codes(harness, task_id) == ["ready"]
        await harness.advance(60)
        await harness.tick("w1")
        assert await self.codes(harness, task_id) == ["unhandled"], "workers are idle, and leave it"

    async def test_its_worker_is_gone(self, harness: Harness) -> None:
        await harness.tick("w1")
        task = await harness.running()
        assert await self.codes(harness, task.id) == []
        await harness.advance(12)
        await harness.tick("w2")
        (reason,) = await why(harness.store, await harness.task(task.id))
        assert reason.code == "lost_worker" and "its worker w1 has been silent since" in reason.text
        # The server's clock goes on meanwhile.
        assert re.search(r"\(1\d s\); the lease ends at .* \(in 4\d s\), then it is tried again", reason.text)
        last = await harness.running(max_attempts=1)
        await harness.advance(12)
        await harness.tick("w2")
        (reason,) = await why(harness.store, await harness.task(last.id))
        assert reason.text.endswith("then it fails: its attempts are used up")
        await harness.advance(60)
        (over, nobody) = await why(harness.store, await harness.task(last.id))
        assert (over.code, nobody.code) == ("lease_over", "no_worker")

    async def test_its_worker_beats_seldom(self, harness: Harness) -> None:
        await harness.store.tick(Heartbeat("w1", "host", 1, ("default",), 4, 0, "0", {}, every=60.0))
        task = await held(harness)
        await harness.advance(100)
        assert await self.codes(harness, task.id) == [], "it is not overdue yet"
        await harness.advance(100)
        assert await self.codes(harness, task.id) == ["lost_worker", "no_worker"]

    async def test_its_worker_was_started_anew(self, harness: Harness) -> None:
        await harness.tick("w1")
        task = await held(harness)
        await harness.advance(20)
        for _ in range(2):
            await harness.store.tick(Heartbeat("w1", "host", 2, ("default",), 4, 0, "0", {}))
            await harness.advance(2)
        (reason,) = await why(harness.store, await harness.task(task.id))
        assert reason.code == "lost_worker" and "w1 was started anew at" in reason.text
        again = await held(harness)
        assert await self.codes(harness, again.id) == []

    async def test_somebody_outside_serves_it(self, harness: Harness) -> None:
        first, second = await harness.enqueue_many(2, queue="ext")
        assert await self.codes(harness, second) == ["no_worker"]
        await executor.claim(harness.store, "ex1", ["ext"], 1, 600)
        await harness.advance(60)
        assert await self.codes(harness, second) == ["ready"]
        assert await self.codes(harness, first) == [], "he is about his work, and says nothing meanwhile"
        await executor.claim(harness.store, "ex1", ["other"], 1, 600)
        assert {row.queues for row in (await harness.store.overview()).workers} == {("ext",), ("other",)}
        await harness.advance(1000)
        assert await self.codes(harness, second) == ["no_worker"]

    async def test_a_claim_is_answered_also_if_nobody_sees_it(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: Any) -> Any:
            raise StoreUnavailable("the wire is cut")

        await harness.enqueue(queue="ext")
        monkeypatch.setattr(type(harness.store), "tick", broken)
        assert len(await executor.claim(harness.store, "ex1", ["ext"], 1, 600)) == 1

    async def test_paused_by_whom(self, harness: Harness) -> None:
        await harness.tick("w1")
        task_id = await harness.enqueue(group="g")
        await harness.hold(Target.QUEUE, "default")
        await harness.hold(Target.KIND, "A")
        assert await self.codes(harness, task_id) == ["paused", "paused"]
        await harness.advance(60)
        await harness.tick("w1")
        assert await self.codes(harness, task_id) == ["paused", "paused"], "free workers leave it for a known reason"

    async def test_quota_with_who_holds_it(self, harness: Harness) -> None:
        await harness.tick("w1")
        await harness.limit("A", concurrency=1)
        first, second = await harness.enqueue(), await harness.enqueue()
        await harness.claim_one()
        (reason,) = await why(harness.store, await harness.task(second))
        assert reason.code == "quota"
        assert str(first) in reason.text and "on w1" in reason.text

    async def test_rate(self, harness: Harness) -> None:
        await harness.tick("w1")
        await harness.limit("A", rate_ms=60_000)
        await harness.enqueue()
        second = await harness.enqueue()
        await harness.claim_one()
        assert await self.codes(harness, second) == ["rate"]

    async def test_backoff_and_run_at(self, harness: Harness) -> None:
        retried = await harness.running()
        await harness.settle(retried, failing())
        assert await self.codes(harness, retried.id) == ["retry_backoff"]
        assert await self.codes(harness, await harness.enqueue(delay=60)) == ["run_at"]

    async def test_failed_and_waiting_for_approval(self, harness: Harness) -> None:
        (task_id,) = await fail(harness)
        assert await self.codes(harness, task_id) == ["failed"]
        operation, approval = await lifecycle.begin(
            harness.store, Action.RETRY, FailureFilter(), actor="ann", rule=Rule(100)
        )
        _, reason = await why(harness.store, await harness.task(task_id))
        assert (reason.code, approval is not None) == ("waiting_approval", True)
        assert operation.id in reason.text

    async def test_what_runs_or_is_done_needs_no_reason(self, harness: Harness) -> None:
        claimed = await harness.running()
        assert await self.codes(harness, claimed.id) == []
        await harness.enqueue()
        (done,) = await run(harness)
        assert await self.codes(harness, done) == []
