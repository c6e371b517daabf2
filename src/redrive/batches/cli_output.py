"""What the command line says of a batch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from redrive.batches.batch import Batch, Failures, RemotePart, WaitView, new_charge
from redrive.batches.items import Item
from redrive.batches.remote.model import ToRetry
from redrive.batches.remote.wait_reasons import MONEY
from redrive.feature.cli import output
from redrive.kernel.wording import sparkline


def line_of(batch: Batch) -> str:
    """Returns how far a batch is, in a few words: ``120 of 500 ended, 4 failed``."""
    more = "".join(f", {n} {what}" for n, what in _counts(batch) if n and what in ("processing", "failed", "cancelled"))
    return f"{batch.state}: {batch.total - batch.pending} of {batch.total} ended{more}"


def say(batch: Batch) -> None:
    """Says how far a batch is."""
    name = "" if batch.name is None else f" {batch.name}"
    counts = ", ".join(f"{n} {what}" for n, what in _counts(batch) if n) or "no items"
    output.say(f"batch {batch.id}{name} is {batch.state}{_besides(batch)}: {counts}")
    at = "" if batch.remote is None else f" at {batch.remote.provider}"
    output.say(f"  made {output.ago(batch.created_at)} ago by {batch.created_by}{at}" + _times(batch))
    if batch.asked:
        output.say(f"  {batch.cancelled_by} wants to cancel it: a second operator has to agree")
    elif batch.cancelled_at is not None:
        output.say(f"  cancelled by {batch.cancelled_by}" + (f": {batch.cancel_reason}" if batch.cancel_reason else ""))
    if batch.fault is not None:
        output.say(f"  what should follow did not: {batch.fault}")
    if batch.remote is not None:
        _say_money(batch, batch.remote)


def _besides(batch: Batch) -> str:
    if batch.remote is not None and batch.remote.pruned_at is not None:
        return ", being removed"
    if batch.cancelled_at is not None:
        return "" if batch.ended or batch.remote is None else ", being cancelled"
    return " and open" if batch.open else ""


def _counts(batch: Batch) -> list[tuple[int, str]]:
    found = [(getattr(batch, name), name) for name in ("pending", "completed", "failed", "cancelled")]
    if batch.remote is None or not batch.remote.processing:
        return found
    running = batch.remote.processing
    return [(batch.pending - running, "pending"), (running, "processing"), *found[1:]]


def _times(batch: Batch) -> str:
    ended = "" if batch.ended_at is None else f", ended {output.ago(batch.ended_at)} ago"
    return ended + ("" if batch.key is None else f", key {batch.key}")


def _say_money(batch: Batch, part: RemotePart) -> None:
    round_ = f", round {part.round}" if part.round > 1 else ""
    if part.account is not None:
        money = f"{part.frozen} frozen, {part.captured} captured, {part.released} released"
        output.say(f"  account {part.account}: {money}, at {part.price} {part.unit} an item{round_}")
    elif round_:
        output.say(f"  round {part.round}")
    if part.reason is not None and batch.cancelled_at is None:
        output.say(f"  {part.reason}")


def say_waits(reasons: Sequence[WaitView]) -> None:
    """Says what keeps items from going on, and what to do about it."""
    for one in reasons:
        output.say(f"  {one.text}" if one.code == MONEY else f"  its items wait: {one.text}")
        if one.fix is not None:
            output.say(output.suggest(one.fix))


def say_failures(batch: Batch, failures: Failures, retry: ToRetry) -> None:
    """Says what the items are failed by, and what to do about it."""
    for name, n in failures.by_type.items():
        output.say(f"  {n} failed by {name}{_over_time(failures, name)}")
    if failures.by_type and not failures.causes:  # of items that were never started there is no cause
        output.say("  " + ", ".join(f"{n} by code {code}" for code, n in failures.by_code.items()))
    for cause in failures.causes[:5]:
        words = output.shorten(" ".join(cause.message.split()), 80)
        output.say(f"  {cause.failed} by cause {cause.fingerprint}: {cause.code} {words}")
    if batch.remote is not None and batch.remote.unknown:
        output.say(f"  {batch.remote.unknown} ended without the provider's word: their jobs may have run all the same")
        output.say(output.suggest(f"ask: redrive batch reconcile {batch.id}"))
    if batch.remote is not None and batch.remote.uncharged:
        output.say(f"  {batch.remote.uncharged} ended here and ran all the same: nobody has paid for them")
        output.say(output.suggest(f"charge for them: redrive batch charge {batch.id} --reason '…'"))
    if retry.stopped:
        output.say(f"  {retry.stopped} ended here, and the provider was asked to end their jobs: they may succeed")
        output.say(output.suggest(f"ask again: redrive batch reconcile {batch.id}"))
    if retry.matched and (batch.remote is None or batch.ended):
        charge = "" if batch.remote is None else new_charge(batch.remote.price_of(retry.matched), batch.remote.unit)
        output.say(output.suggest(f"retry them{charge}: redrive batch retry-failed {batch.id}"))


_WORDS = {
    "failed": "failed there",
    "cancelled": "were cancelled there",
    "stopped": "still ran, and were asked to end",
    "running": "still run, and cannot be cancelled",
    "missing": "are not known there",
    "unanswered": "were not answered for: ask again later; of a provider that cannot be asked, accept it (--accept)",
}


def say_reconciled(found: Mapping[str, Any], unit: str) -> None:
    """Says what providers said of items that had ended without their word, and how to charge for what ran."""
    if not found["asked"]:
        output.say("no item has ended without its provider's word")
        return
    output.say(f"{found['asked']} items had ended without their provider's word:")
    output.say(f"  {found['succeeded']} ran all the same, and were not charged")
    for name, words in _WORDS.items():
        if found[name]:
            output.say(f"  {found[name]} {words}")
    for account, worth in found["worth"].items():
        if worth:
            output.say(f"  {worth} {unit} of {account} would pay for what ran")
    for batch in found.get("ran", {}):
        output.say(output.suggest(f"charge for what ran, if that is right: redrive batch charge {batch} --reason '…'"))


def _over_time(failures: Failures, name: str) -> str:
    """Returns when the items failed by a type, over the time of the batch, as a line of small bars."""
    counts = None if failures.trend is None else failures.trend.by_type.get(name)
    return "" if counts is None else f"  {sparkline(counts)}"


def show_items(items: Sequence[Item]) -> None:
    """Prints items, all of one batch, as a table."""
    if items[0].remote is None:
        output.table(["task", "state", "kind", "#attempts", "what"], [_task_row(one) for one in items])
    else:
        output.table(["#n", "state", "job", "#polls", "what"], [_job_row(one) for one in items])


def _task_row(item: Item) -> list[object]:
    return [item.task_id, output.state(item.state), item.kind, item.attempt_count, _error(item)]


def _job_row(item: Item) -> list[object]:
    job, polls = (None, 0) if item.remote is None else (item.remote.job, item.remote.poll_count)
    result = "" if item.result is None else json.dumps(item.result, ensure_ascii=False)
    what = _error(item) if item.error_code else output.shorten(result, 80)
    if item.remote is not None and item.remote.waits_for is not None:
        what = output.shorten(f"waits: {item.remote.waits_for}", 80)
    if item.remote is not None and (item.remote.unknown or item.remote.said):
        what = f"{'unknown' if item.remote.unknown else 'known'}: {item.remote.said or 'not asked'}; {what}"
    return [item.n, output.state(item.state), output.shorten(job or "", 40), polls, what]


def _error(item: Item) -> str:
    return output.shorten(f"{item.error_code} {item.error_message or ''}", 80) if item.error_code else ""
