"""A worker's option is declared once: whatever is typed reaches the worker, also in a child process."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.cli.commands.work import _command
from redrive.cli.root import root
from redrive.cli.support.loading import Loaded
from redrive.cli.support.worker_options import WorkerStart, flag_of, make_options
from redrive.cli.support.worker_options import _non_empty as gathered
from redrive.errors import InvalidInput
from redrive.settings import Options, fields_of
from redrive.worker.config import WorkerOptions

ALL = tuple(fields_of(Options))


def other_than_the_default(name: str) -> Any:
    """Returns a value that the option does not have by itself, whatever options there will be."""
    one = fields_of(Options)[name]
    kinds = set(typing.get_args(one.kind)) | {one.kind}
    return ("b", "a") if str in kinds else True if bool in kinds else 7 if int in kinds else 2.5


def read_again(app: App, arguments: list[str]) -> Options:
    """Returns the options that a process with this command line has."""
    assert arguments[1:4] == ["-m", "redrive.cli", "work"]
    context = root().commands["work"].make_context("work", arguments[4:])
    return make_options(app, gathered({name: context.params[name] for name in ALL}))


@pytest.mark.parametrize("name", [*ALL, "all of them"])
def test_a_child_process_gets_every_option(name: str, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/x.db")
    given = {one: other_than_the_default(one) for one in ALL if name in (one, "all of them")}
    options = Options(**given)
    assert options != Options(), "it differs from what a forgotten one would be"
    assert read_again(app, _command(Loaded(app), WorkerStart(options, None, 2), "w-1")) == options


def test_none_at_all_is_not_nothing_said(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/x.db")
    options = Options(timeout=0)
    assert read_again(app, _command(Loaded(app), WorkerStart(options, None, 2), "w-1")).timeout == 0


def test_the_application_takes_the_same_options_by_name() -> None:
    assert set(WorkerOptions.__annotations__) == set(ALL)


def test_what_cannot_be_used_is_named_as_it_is_typed(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(InvalidInput, match=r"--max-time -1"):
        make_options(app, {"max_time": -1})
    with pytest.raises(InvalidInput, match="--queue names no queue"):
        make_options(app, {"queues": [","]})
    assert {flag_of(name) for name in ALL} <= {typed for p in root().commands["work"].params for typed in p.opts}
