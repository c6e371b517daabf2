"""What is asked of a storm, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from storm.account import Account
from storm.rates import Rates

RECOVERY = 0.95
STRESS = 0.90
OFFERS = 0.50  # on a busy machine a producer is late, too; but it goes on
# What a worker may use while its store is gone: something for the end of its last tasks, then next to nothing.
BUSY_SECONDS = 0.4
BUSY_SHARE = 0.02
HANDFUL = 20


@dataclass(slots=True)
class Verdict:
    what: str
    holds: bool
    detail: str = ""


@dataclass(slots=True)
class Result:
    """One storm, as it is reported."""

    name: str
    about: str
    store: str
    account: Account | None = None
    rates: Rates | None = None
    seconds: float = 0.0
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def judge(self, what: str, holds: bool, detail: str = "") -> None:
        self.verdicts.append(Verdict(what, holds, detail))

    @property
    def holds(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts)


def judge_books(result: Result) -> None:
    assert result.account is not None
    account = result.account
    result.judge("accounted", account.accounted == account.acknowledged > 0)
    for what, number in account.wrong.items():
        detail = f"{number}: {'; '.join(account.samples[what])}" if number else ""
        result.judge(what, number == 0, detail)


def judge_rates(result: Result, holds_rate: bool) -> None:
    assert result.rates is not None
    rates = result.rates
    result.judge("recovery/baseline", rates.recovery_ratio >= RECOVERY, f"{rates.recovery_ratio:.1%}")
    result.judge("offers/baseline", rates.offers_ratio >= OFFERS, f"{rates.offers_ratio:.1%}")
    took = rates.recovered_after
    result.judge("recovers in time", took is not None, "the backlog stayed" if took is None else f"{took:.1f} s")
    if holds_rate:
        result.judge("stress/clean", rates.stress_ratio >= STRESS, f"{rates.stress_ratio:.1%}")


def judge_calm(result: Result, figures: dict[str, Any]) -> None:
    """Nobody spins and nobody chatters while there is nothing to be had."""
    allowed = BUSY_SECONDS + BUSY_SHARE * figures["watched_seconds"]
    result.judge("worker CPU", figures["worker_cpu_seconds"] <= allowed, f"{figures['worker_cpu_share']:.1%} of a core")
    result.judge("worker log", figures["worker_log_lines"] <= HANDFUL, f"{figures['worker_log_lines']} lines")
