"""How well failures are told apart by their cause, measured on real ones."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.kernel.failure import Failure, Origin, failure
from redrive.kernel.outcome import Verdict
from redrive.worker.failures import failed
from tests.failures.corpus import addresses, fresh, strangers, strangers_blind
from tests.failures.corpus.collect import Cause, failures, score
from tests.failures.corpus.servers import Servers

PARTS = {
    "fresh": fresh.CAUSES,
    "addresses": addresses.CAUSES,
    "strangers": strangers.CAUSES,
    "strangers, blind": strangers_blind.CAUSES,
}
# Precision and recall; what was written last and never looked at again is as it was at first sight.
LEAST = dict.fromkeys(PARTS, (0.99, 0.99)) | {"strangers, blind": (0.96, 0.98)}
SLOW = {"fresh": pytest.mark.thorough}  # they really call servers


def stored(cause: Cause, happened: Any) -> Failure:
    """As a worker makes it: from what was raised or returned, or from what an executor reports."""
    if isinstance(happened, str):
        return failure("TASK_EXECUTION_FAILED", "retry_requested", happened)
    assert isinstance(happened, BaseException), f"{cause.name}: nothing happened, but {happened!r}"
    if isinstance(happened, Verdict) and happened.__traceback__ is None:
        import tests.failures.corpus.collect as collect

        handler = {
            "DEPOT_LATE": ("depot_jobs", "late"),
        }
        module, name = handler[happened.code]  # type: ignore[attr-defined]
        function = getattr(collect.load(module, 0), name)
        return failed(happened, Origin(function.__module__, function.__code__, f"{function.__module__}:{name}")).failure
    return failed(happened, Origin()).failure


@pytest.mark.parametrize("part", [pytest.param(part, marks=[SLOW[part]] if part in SLOW else []) for part in PARTS])
@pytest.mark.timeout(300)
def test_pairs_of_failures(part: str, servers: Servers, postgres: str) -> None:
    chosen = PARTS[part]
    found = score((name, one.fingerprint) for name, one in failures(chosen, servers, postgres, stored))
    print(f"{part}: {len(chosen)} causes, precision {found.precision:.4f}, recall {found.recall:.4f}")
    precision, recall = LEAST[part]
    assert found.precision >= precision and found.recall >= recall, found
