"""The limits of what a task carries: refused on the way in, whichever way that is."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from redrive.errors import InvalidInput, PayloadInvalid
from redrive.kernel.commit import Commit
from redrive.kernel.task import (
    MAX_ATTEMPTS,
    MAX_PAYLOAD_BYTES,
    MAX_PAYLOAD_DEPTH,
    MAX_TEXT,
    MAX_TEXT_BYTES,
    MAX_TIMEOUT_SECONDS,
)
from redrive_kit.conformance.harness import TERMINAL, Harness

LABELS = ("group", "scope", "trace_id", "idempotency_key")


def deep(levels: int, *, objects: bool = False) -> str:
    """JSON text of so many lists or objects inside each other, with a value in the innermost one."""
    return '{"a":' * levels + "1" + "}" * levels if objects else "[" * levels + "1" + "]" * levels


TOO_MUCH: list[dict[str, Any]] = [
    *(
        {label: value}
        for label in LABELS
        for value in (
            "",
            "x" * (MAX_TEXT + 1),
            "x" * 12_000,
            "\U0001f600" * (MAX_TEXT_BYTES // 4 + 1),
            "a\nb",
            "a\x7fb",
            "a\x9bb",
            "a\u2028b",
            "a\u202eb",
        )
    ),
    *({name: value} for name in ("kind", "queue") for value in ("", "a b", "x" * 121, "-a", "ä", "a\n", "x" * 12_000)),
    {"max_attempts": 0},
    {"max_attempts": MAX_ATTEMPTS + 1},
    {"timeout": MAX_TIMEOUT_SECONDS + 1.0},
    {"timeout": 0.0},
]
TOO_LARGE = [
    json.dumps("x" * (MAX_PAYLOAD_BYTES - 1)),
    deep(MAX_PAYLOAD_DEPTH + 1),
    deep(300),
    deep(MAX_PAYLOAD_DEPTH + 1, objects=True),
    "[" * (MAX_PAYLOAD_DEPTH + 1) + "]" * (MAX_PAYLOAD_DEPTH + 1),
    '{"a":' * MAX_PAYLOAD_DEPTH + "{}" + "}" * MAX_PAYLOAD_DEPTH,
    "[" + ",".join(["1"] * (MAX_PAYLOAD_BYTES // 3 + 9)) + "]",
    "[" + ",".join(['{"a":[[]]}'] * 200 + [deep(MAX_PAYLOAD_DEPTH)]) + "]",
]
ENOUGH: list[dict[str, Any]] = [
    *(
        {label: value}
        for label in LABELS
        for value in (
            "x",
            "x" * MAX_TEXT,
            "\u4e2d" * MAX_TEXT,
            "\U0001f468\u200d\U0001f469\u200d\U0001f467",
            "a b'c\"d\\e",
        )
    ),
    *({name: value} for name in ("kind", "queue") for value in ("x" * 120, "_a.b:c-d", "9")),
    {"max_attempts": MAX_ATTEMPTS},
    {"timeout": float(MAX_TIMEOUT_SECONDS)},
    {"timeout": 0.001},
    {"payload": json.dumps("x" * (MAX_PAYLOAD_BYTES - 2))},
    {"payload": deep(MAX_PAYLOAD_DEPTH)},
    {"payload": deep(MAX_PAYLOAD_DEPTH, objects=True)},
    {"payload": deep(MAX_PAYLOAD_DEPTH - 1)},
    {"payload": "[" * MAX_PAYLOAD_DEPTH + "]" * MAX_PAYLOAD_DEPTH},
    {"payload": json.dumps({"brackets in text": "[" * 300 + '"' + "{" * 300})},
    {"payload": "[" + ",".join(["[]"] * 500) + "]"},
]


async def refusals(harness: Harness, given: dict[str, Any]) -> list[InvalidInput]:
    """What is said of such a task: alone, and in a list, of which nothing is stored then."""
    found = []
    for before in (0, 3):
        tasks = [*(harness.new() for _ in range(before)), harness.new(**given)]
        try:
            await harness.store.apply(Commit(enqueues=tasks))
        except InvalidInput as error:
            found.append(error)
    return found


class TestBounds:
    async def test_labels_and_numbers_are_refused(self, harness: Harness) -> None:
        for given in TOO_MUCH:
            assert len(await refusals(harness, given)) == 2, given
        assert await harness.totals() == {}
        await harness.check_totals()

    async def test_payloads_are_refused(self, harness: Harness) -> None:
        options: list[dict[str, Any]] = [{}, {"delay": 5.0}, {"idempotency_key": "k"}]
        for payload, more in product(TOO_LARGE, options):
            said = await refusals(harness, {"payload": payload, **more})
            assert [type(error) for error in said] == [PayloadInvalid] * 2, (payload[:12], len(payload), more)
            assert all(error.message.startswith("payload is ") and error.hint for error in said)
        assert await harness.totals() == {}

    async def test_what_is_just_within_them_comes_back_whole(self, harness: Harness) -> None:
        for given in ENOUGH:
            new = harness.new(**given)
            await harness.store.apply(Commit(enqueues=[new]))
            (claimed,) = await harness.claim(5, queues=(new.queue,))
            assert (claimed.kind, claimed.group, claimed.scope, claimed.trace_id, claimed.idempotency_key) == (
                new.kind,
                new.group,
                new.scope,
                new.trace_id,
                new.idempotency_key,
            )
            assert json.loads(claimed.payload or "null") == json.loads(new.payload or "null")
            assert (claimed.max_attempts, claimed.timeout) == (new.max_attempts, new.timeout)
            # Also where it is counted and indexed.
            assert await harness.settle(claimed, TERMINAL)
        await harness.check_totals()
