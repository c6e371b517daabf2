from __future__ import annotations

import logging

from redrive.observe.logs import FloodFilter


def record(name: str, text: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, __file__, 1, text, args, None)


def test_a_flood_is_cut_and_counted() -> None:
    now = 0.0
    flood = FloodFilter(allowed=3, window=10, clock=lambda: now)
    passed = [flood.filter(record("uvicorn.error", "Invalid request %s", n)) for n in range(1000)]
    assert sum(passed) == 3
    now = 11.0
    first = record("uvicorn.error", "Invalid request %s", 7)
    assert flood.filter(first)
    assert first.getMessage() == "Invalid request 7 (997 more like it were left out)"
    assert flood.filter(record("uvicorn.error", "something else"))


def test_what_an_application_logs_is_never_cut() -> None:
    flood = FloodFilter(allowed=1)
    assert all(flood.filter(record("shop.orders", "paid")) for _ in range(100))


def test_many_sorts_of_lines_are_not_remembered_for_ever() -> None:
    flood = FloodFilter(allowed=1)
    for n in range(5000):
        flood.filter(record("asyncio", f"{n} is odd"))
    assert len(flood._seen) <= 1000
