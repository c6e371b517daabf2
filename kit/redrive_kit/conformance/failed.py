"""Tasks that are failed now: found by what they have in common, counted without counting, and bound to a moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from redrive.kernel.audit import AuditFilter, BulkAction
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.machine import Event, Transition
from redrive.kernel.outcome import Completed, Fail, Failed, Outcome
from redrive.kernel.ports.store import CauseQuery, Query
from redrive.kernel.task import State
from redrive_kit.conformance.harness import TERMINAL, Harness, failing, failing_with

INVALID = Fail("TASK_PAYLOAD_INVALID", "no such shot")


async def fail(harness: Harness, outcome: Outcome = TERMINAL, kind: str = "A", **options: Any) -> UUID:
    claimed = await harness.running(kind, max_attempts=1, **options)
    assert await harness.settle(claimed, outcome)
    return claimed.id


async def found(harness: Harness, which: FailureFilter, **bounds: Any) -> list[UUID]:
    return [task.id for task in await harness.store.failed(which, limit=100, **bounds)]


def again(task_id: UUID, seen: int | None = None, bulk_id: str = "b1") -> Transition:
    return Transition(
        task_id,
        Event.REDRIVE,
        State.QUEUED,
        actor="ann",
        reason="why",
        action="TASK_RETRY_BATCH_ITEM",
        bulk_id=bulk_id,
        seen=seen,
    )


class TestFailed:
    async def test_each_filter_finds_and_counts_the_same(self, harness: Harness) -> None:
        await fail(harness)
        await fail(harness, INVALID, scope="s", trace_id="t")
        await fail(harness, failing(), "B", group="g")
        await fail(harness, failing(), "B", queue="elsewhere", scope="s")
        everything = await harness.store.failed(FailureFilter(), limit=100)
        assert len(everything) == 4
        for which in (
            FailureFilter(),
            FailureFilter(kind="A"),
            FailureFilter(queue="elsewhere"),
            FailureFilter(group="g"),
            FailureFilter(scope="s"),
            FailureFilter(trace_id="t"),
            FailureFilter(error_code="TASK_PAYLOAD_INVALID"),
            FailureFilter(error_reason="unknown_exception"),
            FailureFilter(failure_type="unknown"),
            FailureFilter(dead_reason="max_attempts_exceeded"),
            FailureFilter(dead_reason="non_retryable", kind="A", error_code="TASK_PRECONDITION_FAILED"),
            FailureFilter(kind="A", scope="s"),
            FailureFilter(kind="nobody"),
        ):
            wanted = [task.id for task in everything if which.unlike(task) is None]
            assert await found(harness, which) == wanted, which
            assert await harness.store.count_failed(which) == len(wanted), which

    async def test_by_ids_and_by_fingerprint(self, harness: Harness) -> None:
        ids = [await fail(harness), await fail(harness), await fail(harness, INVALID)]
        queued = await harness.enqueue()
        which = FailureFilter(ids=(ids[2], ids[0], queued))
        assert await found(harness, which) == [ids[0], ids[2]]
        assert await harness.store.count_failed(which) == 2
        assert await harness.store.count_failed(FailureFilter(ids=())) == 0
        cause = FailureFilter(fingerprint=(await harness.task(ids[0])).error_fingerprint)
        assert await found(harness, cause) == ids[:2]
        assert await harness.store.count_failed(cause) == 2
        first, other = cause.fingerprint, (await harness.task(ids[2])).error_fingerprint
        assert await harness.store.count_causes(FailureFilter(), 10) == {first: 2, other: 1}
        assert await harness.store.count_causes(FailureFilter(), 2) == {first: 1, other: 1}  # those that failed last
        assert await harness.store.count_causes(FailureFilter(ids=()), 10) == {}

    async def test_by_when_they_failed(self, harness: Harness) -> None:
        """Days apart, hours, and a moment; together with another filter, in pages, and in both directions."""
        ids = [await fail(harness, kind="AB"[n % 2]) for n in range(2)]
        for seconds in (3 * 86_400, 3_600, 1):
            await harness.advance(seconds)
            ids += [await fail(harness, kind="AB"[n % 2]) for n in range(2)]
        tasks = [await harness.task(task_id) for task_id in ids]
        times = [task.failed_at for task in tasks]
        for first in (None, *times):
            for last in (None, *times):
                for kind in (None, "A"):
                    which = FailureFilter(kind=kind, since=first, until=last)
                    wanted = [task.id for task in tasks if which.unlike(task) is None]
                    assert await found(harness, which) == wanted
                    assert await harness.store.count_failed(which) == len(wanted)
                    assert sum((await harness.store.count_causes(which, 9)).values()) == len(wanted)
        late = FailureFilter(since=times[4])
        assert [await harness.store.count_failed(late, most) for most in (1, 3, 4, 5)] == [1, 3, 4, 4]
        assert await harness.store.count_failed(FailureFilter(), 1) == 8  # totals are exact, and cost nothing
        end, count = await harness.store.failed_end(late)
        assert (count, await harness.store.failed_end(late, 3)) == (4, (end, 3))
        assert [await harness.store.count_failed(late, None, end - n) for n in (0, 1, 4)] == [4, 3, 0]
        assert (await harness.store.failed_end(FailureFilter(), 1))[1] == 8
        assert [one.id for one in await harness.store.failed_ids(late, limit=3)] == ids[4:7]
        pages = [await harness.store.failed(late, limit=3, offset=at, newest=True, documents=100) for at in (0, 3)]
        assert [task.id for page in pages for task in page] == ids[:3:-1]

    async def test_totals_follow_every_way_out_of_failed(self, harness: Harness) -> None:
        retried, cancelled, stays = [await fail(harness, group="g") for _ in range(3)]
        (count,) = await harness.store.failed_counts()
        assert (count.kind, count.group, count.error_code, count.dead_reason, count.n) == (
            "A",
            "g",
            "TASK_PRECONDITION_FAILED",
            "non_retryable",
            3,
        )
        assert await harness.operate(Event.REDRIVE, retried)
        assert await harness.operate(Event.CANCEL, cancelled)
        assert await found(harness, FailureFilter()) == [stays]
        assert await harness.store.count_failed(FailureFilter()) == 1
        assert await harness.settle(await harness.claim_one(), INVALID)
        counts = await harness.store.failed_counts()
        assert {count.error_code: count.n for count in counts} == {
            "TASK_PRECONDITION_FAILED": 1,
            "TASK_PAYLOAD_INVALID": 1,
        }
        await harness.fold()
        assert await harness.store.failed_counts() == counts
        for task_id in (retried, stays):
            assert await harness.operate(Event.REDRIVE, task_id)
        await harness.fold()
        assert await harness.store.failed_counts() == []

    async def test_up_to_a_moment_the_set_stays_the_same(self, harness: Harness) -> None:
        ids = [await fail(harness) for _ in range(3)]
        end, count = await harness.store.failed_end(FailureFilter(kind="A"))
        assert count == 3
        later = await fail(harness)
        assert await harness.operate(Event.REDRIVE, ids[1])
        assert await harness.settle(await harness.claim_one(), TERMINAL)  # failed again: another failure than before
        assert await found(harness, FailureFilter(), upto=end) == [ids[0], ids[2]]
        assert await found(harness, FailureFilter()) == [ids[0], ids[2], later, ids[1]]
        task = await harness.task(ids[1])
        assert task.failed_seq is not None and task.failed_seq > end
        assert await harness.store.failed_end(FailureFilter(kind="B")) == (task.failed_seq, 0)

    async def test_pages_have_everything_once(self, harness: Harness) -> None:
        ids = [await fail(harness) for _ in range(7)]
        pages = [await harness.store.failed(FailureFilter(kind="A"), limit=3, offset=offset) for offset in (0, 3, 6, 9)]
        assert [task.id for page in pages for task in page] == ids
        newest = await harness.store.failed(FailureFilter(), limit=3, newest=True)
        assert [task.id for task in newest] == ids[:3:-1]
        walked: list[UUID] = []
        after = 0
        while page := await harness.store.failed(FailureFilter(), limit=2, after=after):
            walked += [task.id for task in page]
            after = page[-1].failed_seq or 0
        assert walked == ids

    async def test_a_retry_of_many_is_audited_with_its_bulk_id(self, harness: Harness) -> None:
        failed, cancelled = await fail(harness), await harness.cancelled()
        moves = [again(failed), again(cancelled)]
        assert not (await harness.store.apply(Commit(transitions=moves))).lost
        for task_id in (failed, cancelled):
            assert (await harness.task(task_id)).last_replayed_bulk_id == "b1"
            timeline = await harness.store.timeline(task_id)
            assert timeline is not None
            row = timeline.audit[-1]
            assert (row.action, row.bulk_id, row.reason) == ("TASK_RETRY_BATCH_ITEM", "b1", "why")

    async def test_a_bulk_action_says_what_it_skipped_and_why(self, harness: Harness) -> None:
        failed, queued, nobody = await fail(harness), await harness.enqueue(), UUID(int=7)
        done = await harness.running("B", queue="other", scope="s", trace_id="t")
        assert await harness.settle(done, Completed())
        bulk = BulkAction("b1", "ann", "TASK_RETRY_BATCH", "why", {"kind": "A"})
        moves = [again(task_id) for task_id in (failed, queued, nobody, done.id)]
        applied = await harness.store.apply(Commit(transitions=moves, bulk=bulk))
        assert applied.skipped == {queued: "queued", nobody: None, done.id: "completed"}
        rows = await harness.audit(bulk_id="b1")
        assert sorted(row.action for row in rows) == [
            "TASK_RETRY_BATCH_ITEM",
            "TASK_RETRY_BATCH_SKIPPED",
            "TASK_RETRY_BATCH_SKIPPED",
            "TASK_RETRY_BATCH_SKIPPED",
            "TASK_RETRY_BATCH_SUMMARY",
        ]
        skipped = {row.task_id: row for row in rows if row.action.endswith("SKIPPED")}
        assert skipped[queued].reason == "it is queued, not failed or cancelled"
        assert skipped[nobody].reason == "not found"
        assert (skipped[done.id].kind, skipped[done.id].scope, skipped[done.id].trace_id) == ("B", "s", "t")
        (summary,) = [row for row in rows if row.action.endswith("SUMMARY")]
        assert summary.after == {"matched": 4, "done": 1, "skipped": 3, "filter": {"kind": "A"}}
        assert [task.id for task in await harness.store.failed(FailureFilter(), limit=10)] == []

    async def test_only_by_the_failure_that_was_seen(self, harness: Harness) -> None:
        task_id = await fail(harness)
        seen = (await harness.task(task_id)).failed_seq
        assert await harness.operate(Event.REDRIVE, task_id)
        assert await harness.settle(await harness.claim_one(), TERMINAL)
        bulk = BulkAction("b1", "ann", "TASK_RETRY_BATCH")
        applied = await harness.store.apply(Commit(transitions=[again(task_id, seen)], bulk=bulk))
        assert applied.skipped == {task_id: "failed"}
        current = (await harness.task(task_id)).failed_seq
        assert not (await harness.store.apply(Commit(transitions=[again(task_id, current)]))).lost
        cancelled = await harness.cancelled()
        assert (await harness.store.apply(Commit(transitions=[again(cancelled, 1)]))).lost == {cancelled}

    async def test_those_that_came_back_from_a_bulk_action(self, harness: Harness) -> None:
        first, second = await fail(harness), await fail(harness)
        await harness.store.apply(Commit(transitions=[again(first, bulk_id="mine"), again(second, bulk_id="other")]))
        for _ in range(2):
            assert await harness.settle(await harness.claim_one(), TERMINAL)
        assert await found(harness, FailureFilter(bulk_id="mine")) == [first]
        assert await harness.store.count_failed(FailureFilter(bulk_id="mine")) == 1

    async def test_failures_by_the_hour(self, harness: Harness) -> None:
        began = await harness.store.now()
        for _ in range(2):
            await fail(harness)
        await harness.advance(7200)
        last = await fail(harness)
        await harness.fold()
        fingerprint = (await harness.task(last)).error_fingerprint
        assert fingerprint is not None
        since = began - timedelta(hours=24)
        trends = await harness.store.trends([fingerprint, "nobody"], since)
        assert [n for _, n in trends[fingerprint]] in ([2, 1], [1, 1, 1])  # the second on the other side of an hour
        assert trends["nobody"] == []
        (group,) = await harness.store.causes(CauseQuery(fingerprints=[fingerprint, "nobody"]))
        assert (group.fingerprint, group.count) == (fingerprint, 3)


class TestGivenUp:
    async def test_cancelled_tasks_are_found_by_their_last_dead_letter(self, harness: Harness) -> None:
        first = await fail(harness, scope="s", trace_id="t", group="g")
        second = await fail(harness, INVALID, "B")
        third = await fail(harness, INVALID)
        waiting = await harness.enqueue("A")
        await harness.operate(Event.CANCEL, third, second, first, waiting)
        kept = await fail(harness)
        search = partial(harness.store.failed_ids, cancelled=True)

        async def ids(which: FailureFilter, **bounds: Any) -> list[UUID]:
            return [one.id for one in await search(which, limit=100, **bounds)]

        assert await ids(FailureFilter()) == [first, second, third], "by their letters, and none without one"
        places = [one.failed_seq or 0 for one in await search(FailureFilter(), limit=100)]
        assert await ids(FailureFilter(), after=places[0]) == [second, third]
        assert await ids(FailureFilter(), upto=places[1]) == [first, second]
        assert [one.id for one in await search(FailureFilter(), limit=1, offset=1)] == [second]
        letters = {one.task_id: one.dead_at for one in await harness.store.dead_letters(Query())}
        for which, wanted in {
            FailureFilter(kind="B"): [second],
            FailureFilter(error_code="TASK_PAYLOAD_INVALID"): [second, third],
            FailureFilter(scope="s", trace_id="t", group="g"): [first],
            FailureFilter(queue="elsewhere"): [],
            FailureFilter(dead_reason="non_retryable", kind="A", error_code="TASK_PAYLOAD_INVALID"): [third],
            FailureFilter(ids=(first, kept)): [first],
            FailureFilter(bulk_id="b1"): [],
            FailureFilter(since=letters[second]): [second, third],
            FailureFilter(until=letters[second], kind="A"): [first],
        }.items():
            assert await ids(which) == wanted, which
            assert (await harness.store.failed_end(which, cancelled=True))[1] == len(wanted)
        await harness.operate(Event.REDRIVE, second)
        assert await ids(FailureFilter()) == [first, third]

    async def test_an_id_that_is_in_history_twice_is_one_task(self, harness: Harness) -> None:
        """Used again by a producer of its own ids: the newest row is the task, and it keeps nobody else from moving."""
        first, other = await fail(harness), await fail(harness)
        await harness.operate(Event.CANCEL, first, other)
        assert await fail(harness, INVALID, "B", id=first, scope="s") == first
        assert [one.id for one in await harness.store.failed_ids(FailureFilter(), limit=9, cancelled=True)] == [
            other
        ], "it is failed now"
        assert (await harness.store.failed_end(FailureFilter(), cancelled=True))[1] == 1
        await harness.operate(Event.CANCEL, first)
        assert [one.id for one in await harness.store.failed_ids(FailureFilter(), limit=9, cancelled=True)] == [
            other,
            first,
        ]
        assert (await harness.store.failed_end(FailureFilter(), cancelled=True))[1] == 2
        assert (await harness.store.statuses([first]))[first].kind == "B"

        bulk = BulkAction("b1", "ann", "TASK_RETRY_BATCH", "why")
        applied = await harness.store.apply(Commit(transitions=[again(first), again(other)], bulk=bulk))
        assert (applied.lost, applied.refused) == (set(), {})
        task = await harness.task(first)
        assert (task.state, task.kind) == (State.QUEUED, "B")
        await harness.check_totals()
        audited = AuditFilter(bulk_id="b1")
        rows = [row for row in await harness.store.audit(audited, limit=50) if row.task_id]
        assert {(row.task_id, row.kind) for row in rows} == {(first, "B"), (other, "A")}

        applied = await harness.store.apply(Commit(transitions=[again(first), again(other)], bulk=bulk))
        assert applied.skipped == {first: "queued", other: "queued"}, "it is live: what is in history stays there"
        assert len([row for row in await harness.store.audit(audited, limit=50) if row.task_id]) == len(rows) + 2
        await harness.check_totals()

    async def test_a_retry_may_mean_cancelled_tasks_only(self, harness: Harness) -> None:
        given_up, failed = await fail(harness), await fail(harness)
        await harness.operate(Event.CANCEL, given_up)
        moves = [
            Transition(task_id, Event.REDRIVE, State.QUEUED, actor="ann", sources=(State.CANCELLED,))
            for task_id in (given_up, failed)
        ]
        applied = await harness.store.apply(Commit(transitions=moves))
        assert applied.lost == {failed}
        assert (await harness.task(given_up)).state is State.QUEUED


class TestCauses:
    """Failures are told apart by their causes, whatever their messages name."""

    async def test_a_new_fingerprint_goes_on_with_the_older_cause_of_the_same_summary(self, harness: Harness) -> None:
        """What operators said about a cause stays with it when the rules that tell causes apart change."""

        def by(fingerprint: str, message: str) -> Failed:
            return Failed(replace(failing_with({"message": message}).failure, fingerprint=fingerprint, retryable=False))

        async def fail(*outcomes: Failed) -> list[str | None]:
            ids = await harness.enqueue_many(len(outcomes), max_attempts=1)
            claimed = {task.id: task for task in await harness.claim(len(ids))}
            await harness.settle_many([(claimed[i], outcome) for i, outcome in zip(ids, outcomes, strict=True)])
            timelines = [await harness.store.timeline(i) for i in ids]
            for line in timelines:
                assert line is not None
                assert {line.attempts[0].fingerprint, line.dead_letters[0].error_fingerprint} == {
                    line.task.error_fingerprint
                }
            await harness.check_totals()
            return [line.task.error_fingerprint for line in timelines if line is not None]

        assert await fail(by("1old", "gone"), by("2other", "lost")) == ["1old", "2other"]
        await harness.fold()
        assert await fail(by("4new", "gone"), by("4x", "late"), by("3y", "gone")) == ["1old", "4x", "3y"]
        # By its name from now on, whatever its summary shows of another task.
        assert await fail(by("4new", "gone …")) == ["1old"]
        await harness.fold()
        assert await fail(by("4new", "…"), by("4x", "gone")) == ["1old", "4x"]
        counts = {cause.fingerprint: cause.count for cause in await harness.store.causes(CauseQuery(limit=10))}
        assert counts == {"1old": 4, "2other": 1, "4x": 2, "3y": 1}
        assert [one.fingerprint for one in await harness.store.causes(CauseQuery(5, prefix="4new"))] == ["1old"]

    async def test_a_cause_speaks_of_one_task(self, harness: Harness) -> None:
        """Message, kind and summary are those of its sample: whoever looks at one judges the others by its payload."""
        said: dict[str, tuple[str, str, Any]] = {}
        for _ in range(3):
            ids = [await harness.enqueue(kind, max_attempts=9) for kind in "ABCABC"]
            claimed = await harness.claim(len(ids))
            outcomes = []
            for task in claimed:
                text = f"{'zyx'[len(said) % 3]} {task.id}"
                said[str(task.id)] = (text, task.kind, {"message": text})
                outcomes.append((task, failing_with({"message": text}, text)))
            await harness.settle_many(outcomes)
            for folded in (False, True):
                if folded:
                    await harness.fold()
                (cause,) = await harness.store.causes(CauseQuery(limit=10))
                assert (cause.message, cause.kind, cause.summary) == said[str(cause.sample_task)]
                assert cause.count == len(said)

    async def test_failures_are_grouped_by_cause(self, harness: Harness) -> None:
        await harness.enqueue_many(7, max_attempts=1)
        claimed = await harness.claim(7)
        messages = ["user 17 not found", "user 18 not found", "disk full", "user 99 not found"]
        await harness.settle_many([(t, failing(message)) for t, message in zip(claimed, messages, strict=False)])
        await harness.store.upkeep("fold")
        await harness.settle_many([(t, failing("disk full")) for t in claimed[4:]])
        causes = {cause.message: cause for cause in await harness.store.causes(CauseQuery(10))}
        counted = {message: cause.count for message, cause in causes.items()}
        assert sum(counted.values()) == 7 and len(counted) == 2
        assert counted["disk full"] == 4
        full = causes["disk full"]
        assert full.sample_task in {task.id for task in claimed} and full.first_seen <= full.last_seen
        assert (full.code, full.kind) == ("TASK_EXECUTION_FAILED", "A")
        await harness.store.upkeep("fold")
        assert {cause.message: cause.count for cause in await harness.store.causes(CauseQuery(10))} == counted
