"""Growth: the drain rate with much in the queue, with many kinds, with large payloads, as a share of the plain rate."""

from __future__ import annotations

from typing import Any

from bench import figures, fixtures
from bench.labels import label
from bench.measure import Bench, drain, not_measured
from bench.peers import Peer

Case = dict[str, Any]


async def measure(bench: Bench, adapter: type[Peer]) -> list[Case]:
    """Each case stands between two plain runs, so that a machine's change of mood is not taken for growth; where time
    is short, the plain run is only made anew after every third case."""
    results: list[Case] = []
    plain = await _plain(bench, adapter) if not bench.out_of_time() else {}
    for number, case in enumerate(cases(bench), 1):
        if bench.out_of_time():
            results.append({**case, "not_measured": "no time was left"})
            continue
        done = await _try(bench, adapter, case)
        again = await _plain(bench, adapter) if bench.plan.deadline is None or number % 3 == 0 else plain
        results.append({**case, **done, **_compared(done, plain, again)})
        plain = again
    return results


def _compared(done: Case, *plain: Case) -> Case:
    around = [run["per_s"] for run in plain if "per_s" in run]
    if not around or "per_s" not in done:
        return {}
    return {"plain_per_s": figures.median(around), "ratio": done["per_s"] / figures.median(around)}


def cases(bench: Bench) -> list[Case]:
    plan = bench.plan
    return [
        *({"case": case, "rows": rows} for rows in plan.growth for case in plan.growth_cases),
        *({"case": "kinds", "kinds": kinds} for kinds in plan.kinds),
        *({"case": "payload", "bytes": size} for size in plan.payloads),
    ]


async def _plain(bench: Bench, adapter: type[Peer]) -> Case:
    return await _try(bench, adapter, {"case": "plain"})


async def _try(bench: Bench, adapter: type[Peer], case: Case) -> Case:
    bench.say(f"growth {adapter.name}, {label(case)}")
    try:
        return await _run(bench, adapter, case)
    except Exception as error:
        return not_measured(error)


async def _run(bench: Bench, adapter: type[Peer], case: Case) -> Case:
    sample = bench.plan.growth_sample
    if "bytes" in case:
        sample = max(min(sample, sample * 2000 // case["bytes"]), 500)
        return await drain.measure(bench, adapter, 1, sample, pad="x" * (case["bytes"] - 20))
    if "kinds" in case:
        return await drain.measure(bench, adapter, 1, sample, kinds=case["kinds"])
    if "rows" not in case:
        return await drain.measure(bench, adapter, 1, sample)

    async def background(peer: Peer) -> None:
        await fixtures.make(peer, case["case"], case["rows"])

    if case["case"] == "waiting":
        sample = min(sample, case["rows"])
        return await drain.measure(bench, adapter, 1, sample, places=case["rows"], background=background)
    return await drain.measure(bench, adapter, 1, sample, background=background, saturated=case["case"] == "saturated")
