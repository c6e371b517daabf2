"""A trace id from any tool, typed into the command line."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.conftest import Said

Run = Callable[..., Said]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def test_a_trace_finds_its_task_and_a_list_its_tasks(redrive: Run) -> None:
    redrive("migrate")
    first = redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--trace-id", PARENT, "--json").json
    assert first["trace_id"] == TRACE
    for given in (TRACE, PARENT):
        assert redrive("show", given, "--json").json["task"]["id"] == first["id"]
        assert [one["id"] for one in redrive("list", "--trace-id", given, "--json").json["items"]] == [first["id"]]
    redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--trace-id", TRACE)
    several = redrive("show", TRACE)
    assert several.code == 2 and f"redrive list --trace-id {TRACE}" in several.err
    unknown = redrive("show", TRACE[::-1])
    assert unknown.code == 1 and "there is no task" in unknown.err
