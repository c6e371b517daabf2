"""Every error says by its base what it is: no face has a list of errors."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

import redrive
import redrive_kit
from redrive import errors
from redrive.api.access import TooManyFailures, Unauthorized
from redrive.cli.support.instance import Refused
from redrive.errors import ErrorCode, RedriveError

# Those that say what they and theirs are; all others say only their code.
BASES = {
    RedriveError,
    errors.NotFound,
    errors.Conflict,
    errors.NotAllowed,
    errors.InvalidInput,
    errors.Unavailable,
    errors.WrongSetting,
    errors.KitNeeded,
    errors.StoreUnusable,
    Unauthorized,
    TooManyFailures,
}
INTERNAL = {"NotMade", "KeyBlocked", "IdTaken", "RetryWithheld"}  # never reach a face by themselves
# To programs the same, to people told otherwise.
AS_ITS_BASE = {"WrongSetting", "SignInNeeded", "FieldRefused", "KeysTaken"}
GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"
_HEAVY = ("redrive_kit.conformance", "redrive.integrations.django", "redrive.__main__", "redrive.cli.__main__")
_MOVED = ("redrive.examples", "redrive.testing.conformance", "redrive.outbox.simulator")  # they raise


def _below(kind: type[RedriveError]) -> Iterator[type[RedriveError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _all() -> list[type[RedriveError]]:
    for package in (redrive, redrive_kit):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith((*_HEAVY, *_MOVED)):
                importlib.import_module(module.name)
    return sorted({RedriveError, *_below(RedriveError)}, key=lambda kind: kind.__name__)


def test_each_has_a_status_an_exit_code_and_a_code_of_its_own() -> None:
    """A code that is inherited is somebody else's as well."""
    taken: dict[str, str] = {}
    for kind in (one for one in _all() if one.__module__.startswith(("redrive.", "redrive_kit."))):
        name = kind.__name__
        assert HTTPStatus(kind.status) and kind.exit_code in (1, 2, 3), name
        if kind not in BASES:
            assert "status" not in vars(kind) and "exit_code" not in vars(kind), f"{name}: its base says that"
        assert kind.code.replace("_", "").isalpha() and kind.code.isupper(), name
        if name not in INTERNAL | AS_ITS_BASE:
            other = taken.setdefault(kind.code, name)
            assert other == name, f"{name} has the code of {other}: give it one of its own"


def test_each_code_of_a_failed_task_is_explained() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    assert [code for code in ErrorCode if f"| `{code}` |" not in guide] == [], "its row in the table of docs/guide.md"


@pytest.mark.parametrize(
    ("base", "status", "exit_code"),
    [
        (errors.NotFound, 404, 1),
        (errors.InvalidInput, 422, 2),
        (errors.Unavailable, 503, 3),
        (errors.ConfigError, 500, 1),
    ],
)
def test_one_of_a_feature_needs_no_entry_anywhere(base: type[RedriveError], status: int, exit_code: int) -> None:
    mine = type("Mine", (base,), {"code": "MINE"})("no")
    assert (mine.status, mine.exit_code, mine.code) == (status, exit_code, "MINE")


def test_the_store_says_what_it_said() -> None:
    assert (errors.StoreUnavailable.status, errors.StoreUnavailable.exit_code) == (503, 3)
    assert (errors.StoreUnusable.status, errors.StoreUnusable.exit_code) == (503, 1)
    assert (errors.WrongSetting.exit_code, errors.SchemaError.exit_code, errors.StoreError.status) == (2, 1, 500)
    assert Refused(418, {}).status == 418
