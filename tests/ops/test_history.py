"""How things went, as lists to draw."""

from __future__ import annotations

import pytest

from redrive.errors import InvalidInput, UnknownKind
from redrive.ops.history import PERIODS
from redrive.testing.conformance.harness import Harness
from tests.ops.test_operator import operator

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("period", list(PERIODS))
async def test_where_nobody_looked_there_is_nothing(harness: Harness, period: str) -> None:
    found = await operator(harness).health.history(period)
    gaps = [None] * len(found.moments)
    assert len(gaps) == PERIODS[period].steps and found.step == found.moments[1] - found.moments[0]
    assert found.completed == found.failed == found.depth == found.oldest_age == found.wait["p99"] == gaps
    rates = await operator(harness).health.rates()
    assert (len(rates.moments), rates.kinds, rates.queues) == (60, {}, {})


async def test_what_nobody_knows_has_no_history(harness: Harness) -> None:
    with pytest.raises(InvalidInput, match="'2h' is not a period"):
        await operator(harness).health.history("2h")
    with pytest.raises(UnknownKind):
        await operator(harness).health.history("1h", kind="nonsense")
