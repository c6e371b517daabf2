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
from redrive.api.problems import status_of
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


def _below(kind: type[RedriveError]) -> Iterator[type[RedriveError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _all() -> list[type[RedriveError]]:
    for package in (redrive, redrive_kit):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(_HEAVY):
                importlib.import_module(module.name)
    return sorted({RedriveError, *_below(RedriveError)}, key=lambda kind: kind.__name__)


OWN = [kind for kind in _all() if kind.__module__.startswith(("redrive.", "redrive_kit."))]


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_each_has_a_status_and_an_exit_code_by_its_base(kind: type[RedriveError]) -> None:
    assert HTTPStatus(kind.status) and kind.exit_code in (1, 2, 3)
    if kind not in BASES:
        assert "status" not in vars(kind) and "exit_code" not in vars(kind)


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_each_has_a_code(kind: type[RedriveError]) -> None:
    assert kind.code.replace("_", "").isalpha() and kind.code.isupper()
    if kind is not RedriveError and kind.__name__ not in INTERNAL:
        assert kind.code != RedriveError.code


def test_no_two_have_the_same_code() -> None:
    """A code that is inherited is somebody else's as well."""
    taken: dict[str, str] = {}
    for kind in OWN:
        if kind.__name__ not in INTERNAL | AS_ITS_BASE:
            other = taken.setdefault(kind.code, kind.__name__)
            assert other == kind.__name__, f"{kind.__name__} has the code of {other}: give it one of its own"


@pytest.mark.parametrize("code", ErrorCode)
def test_each_code_of_a_failed_task_is_explained(code: ErrorCode) -> None:
    assert f"| `{code}` |" in GUIDE.read_text(encoding="utf-8"), "its row in the table of docs/guide.md"


@pytest.mark.parametrize(
    ("base", "status", "exit_code"),
    [
        (errors.NotFound, 404, 1),
        (errors.Conflict, 409, 1),
        (errors.NotAllowed, 403, 1),
        (errors.InvalidInput, 422, 2),
        (errors.Unavailable, 503, 3),
        (errors.ConfigError, 500, 1),
    ],
)
def test_one_of_a_feature_needs_no_entry_anywhere(base: type[RedriveError], status: int, exit_code: int) -> None:
    mine = type("Mine", (base,), {"code": "MINE"})("no")
    assert (status_of(mine), mine.exit_code, mine.code) == (status, exit_code, "MINE")


def test_the_store_says_what_it_said() -> None:
    assert (errors.StoreUnavailable.status, errors.StoreUnavailable.exit_code) == (503, 3)
    assert (errors.StoreUnusable.status, errors.StoreUnusable.exit_code) == (503, 1)
    assert (errors.WrongSetting.exit_code, errors.SchemaError.exit_code, errors.StoreError.status) == (2, 1, 500)
    assert Refused(418, {}).status == 418
