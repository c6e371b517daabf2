"""Running the market: deploys, models, reports."""

from __future__ import annotations

import os

from redrive import Fail

SETTINGS = {
    "region": "eu-central",
    "database": "market_live",
    "cluster": "blue green",
    "replicas": ["db-one", "db-two", "reserve db"],
}
HOSTS = ["web-01", "web-02.internal", "worker_a", "build agent", "gpu box"]
MODELS = {"rank": "ranker-large", "price": "price model", "fraud": "fraud_net_v2"}
COLUMNS = ["unit price", "order_date", "customer", "ship-to"]
REPORTS = {1: "monthly sales", 2: "returns by region", 3: "stock_value"}
DEFAULT_HOST = os.environ.get("MARKET_HOST", "primary-host")


def replica(number: int, seconds: float) -> None:
    name = SETTINGS["replicas"][number % 3]
    raise RuntimeError(f"{name} in {SETTINGS['region']} is {seconds:.1f}s behind")


def unreachable(number: int) -> None:
    raise RuntimeError(f"no heartbeat from {HOSTS[number % len(HOSTS)]}")


def drift(model: str, feature: str, score: float) -> None:
    raise RuntimeError(f"{MODELS[model]}: feature {feature} drifted by {score}")


def column(name: str, dtype: str) -> None:
    raise ValueError(f"column {name} has type {dtype}")


def column_known(number: int) -> None:
    name = COLUMNS[number % len(COLUMNS)]
    raise KeyError(f"column {name} not in frame")


def null_values(table: str, counts: dict[str, int]) -> None:
    parts = [f"{name} ({n})" for name, n in counts.items()]
    raise ValueError(f"{table} has nulls in {', '.join(parts) or 'no column'}")


def report(number: int, month: str) -> None:
    raise RuntimeError(f"report {REPORTS[number]} for {month} is empty")


def quota(team: str, used: int) -> None:
    raise Fail("MARKET_QUOTA", f"team {team} has used {used} of its build minutes")


def licence(product: str, until: str) -> None:
    raise Fail("MARKET_LICENCE", "licence of " + product + " ended " + until)


def licence_seats(product: str, seats: int) -> None:
    raise Fail("MARKET_LICENCE", f"licence of {product} covers {seats} seats")


def lock(host: str, who: str, since: str) -> None:
    try:
        raise FileExistsError(17, "File exists", f"/run/{host}.lock")
    except FileExistsError as error:
        raise RuntimeError(f"{host} is locked by {who} since {since}") from error


def parse(text: str, where: str) -> None:
    try:
        int(text)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def schedule(job: str, cron: str) -> None:
    assert cron.count(" ") == 4, f"schedule {cron!r} of {job} needs five fields"


def from_default(path: str) -> None:
    raise RuntimeError("cannot copy " + path + " from " + DEFAULT_HOST)


def several(jobs: dict[str, str]) -> None:
    raise ExceptionGroup(
        f"{len(jobs)} jobs failed", [RuntimeError(f"job {name} on {host} stopped") for name, host in jobs.items()]
    )
