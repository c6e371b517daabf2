"""One walk over the audit log serves everybody who asks."""

from __future__ import annotations

import asyncio

import pytest

from redrive.console import verification
from redrive.console.verification import Verification
from redrive.ops.audit_verify import Verdict

pytestmark = pytest.mark.anyio


class Walks:
    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> Verdict:
        self.begun += 1
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return Verdict(rows=self.begun)


async def test_many_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, walk = Verification(), Walks()
    asked = [asyncio.create_task(shared.verdict(walk)) for _ in range(5)]
    await asyncio.sleep(0)
    asked.pop().cancel()  # a reader who leaves
    walk.go_on.set()
    assert [(await one)[0].rows for one in asked] == [1] * 4
    assert (await shared.verdict(walk))[0].rows == 1, "it is good for a while"
    monkeypatch.setattr(verification, "GOOD_FOR_S", 0.0)
    assert (await shared.verdict(walk))[0].rows == 2


async def test_what_failed_is_tried_again() -> None:
    shared, walk = Verification(), Walks()
    walk.go_on.set()
    walk.error = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        await shared.verdict(walk)
    walk.error = None
    assert (await shared.verdict(walk))[0].rows == 2


async def test_a_process_that_stops_does_not_wait_for_it() -> None:
    shared, walk = Verification(), Walks()
    asked = asyncio.create_task(shared.verdict(walk))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    shared.close()
    with pytest.raises(asyncio.CancelledError):
        await asked
