"""What was written where something was raised, by functions that really raise."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from redrive.kernel.failure import failure_of
from redrive.kernel.raise_site import MAX_CODE, MAX_LOOKS, _texts_of

WAREHOUSES = ["warehouse-eu", "main hall", "cold_store", "overflow"]
CITIES = {"b": "Berlin", "n": "New York", "t": "Bad Tölz"}
SUPPLIERS = json.loads('{"one": {"name": "Fast Freight"}, "two": {"name": "not-found ltd"}}')
TEXTS = {"en": {"gone": "{who} is gone for good", "late": "{who} came too late"}}
REASONS = {"old": "it is too old", "new": "it is too new"}
DEFAULT = "no reason was given"
ERRORS = {1: "quota exceeded", 2: "not permitted", 3: "declined"}
PLACES = ["Wrong Way", "Berlin", "Lost Springs", "Bad Request"]


class Why(enum.Enum):
    EXPIRED = "card expired"
    STOLEN = "card stolen"


class Declined(Exception):
    def __init__(self, who: str, why: str) -> None:
        super().__init__(f"{who} was declined: {why}")


class Declared(Exception):
    """An exception of the application's own."""


def fingerprint(call: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(Exception) as caught:
        call(*args)
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # without this function
    return failure_of(caught.value).fingerprint


def causes(call: Callable[..., Any], *variants: Any) -> int:
    return len({fingerprint(call, *(one if isinstance(one, tuple) else (one,))) for one in variants})


class TestData:
    """Texts that merely stand near do not count."""

    def test_of_a_table_of_the_module(self) -> None:
        def closed(key: str) -> None:
            raise RuntimeError(f"the shop in {CITIES[key]} is closed")

        def silent(key: str) -> None:
            raise RuntimeError(f"{SUPPLIERS[key]['name']} does not answer")

        assert causes(closed, "b", "n", "t") == causes(silent, "one", "two") == 1

    def test_of_a_table_or_a_list_of_the_function(self) -> None:
        def unit(key: str) -> None:
            units = {"pcs": "single pieces", "m": "running metres"}
            raise ValueError(f"unit {units.get(key, key)} does not fit")

        def city(n: int) -> None:
            cities = ["New York", "São Paulo"]
            raise ValueError(f"no flight to {cities[n]}")

        def compared(city: str) -> None:
            if city == "New York":
                city = city.replace("New York", "Bad Ems")
            raise ValueError(f"no flight to {city}")

        assert causes(unit, "pcs", "m", "kg") == causes(city, 0, 1) == causes(compared, "New York", "Rome") == 1

    def test_of_a_loop(self) -> None:
        def missing(row: dict[str, Any]) -> None:
            for name in ("vat_id", "ship to", "e-mail"):
                if name not in row:
                    raise ValueError(f"the row lacks {name}")

        assert causes(missing, {}, {"vat_id": 1}, {"vat_id": 1, "ship to": 1}) == 1


class TestWhatIsSaid:
    """Texts that a message was made of do count."""

    def test_by_a_helper_that_has_no_word(self) -> None:
        def problem(what: str, n: int, detail: str) -> None:
            raise ValueError(f"{what} #{n}" + (f": {detail}" if detail else ""))

        def load(n: int, car: bool, detail: str) -> None:
            what = "car" if car else "driver"
            problem(what, n, detail)

        assert causes(load, (1, True, "Rome"), (2, True, ""), (3, True, "Bad Ems")) == 1
        assert causes(load, (1, True, ""), (1, False, "")) == 2

    def test_in_a_list_that_was_collected(self) -> None:
        def check(stamp: bool, who: str) -> None:
            problems = []
            if stamp:
                problems.append("receiver is not known")
            else:
                problems.append("stamp is not valid")
            raise ValueError(f"letter of {who} is bad: {'; '.join(problems)}")

        def lines(who: str, rows: list[str]) -> None:
            said = [f"the list of {who} has errors:"]
            for row in rows:
                said.append(f"  line of {row}")  # noqa: PERF401 - people do
            raise ValueError("\n".join(said))

        assert causes(check, (True, "a"), (True, "b c")) == 1
        assert causes(check, (True, "a"), (False, "a")) == 2
        assert causes(lines, ("a", []), ("b", ["no name"]), ("c", ["x", "not found"])) == 1

    def test_in_a_catalogue(self) -> None:
        def text(key: str, **values: str) -> str:
            return TEXTS["en"][key].format(**values)

        def told(key: str, who: str) -> None:
            raise RuntimeError(text(key, who=who))

        def told_why(who: str, old: bool) -> None:
            raise RuntimeError(f"{who} stays: {REASONS['old'] if old else REASONS['new']}")

        told.__globals__["text"] = text
        assert causes(told, ("gone", "a"), ("gone", "b c")) == 1
        assert causes(told, ("gone", "a"), ("late", "a")) == 2
        assert causes(told_why, ("a", True), ("a", False)) == 2


class TestTables:
    """A text from a table of errors is a reason, one from a table of data a value; the table as a whole says which."""

    @pytest.mark.parametrize(
        "say",
        [
            lambda n, who: f"provider said {ERRORS[n]} for {who}",
            lambda n, who: "provider said %s for %s" % (ERRORS[n], who),  # noqa: UP031 - people do
            lambda n, who: f"{ERRORS.get(n)}: {who}",
            lambda n, who: ERRORS[n],
        ],
    )
    @pytest.mark.parametrize("kind", [RuntimeError, Declared])
    def test_of_errors(self, kind: type[Exception], say: Callable[..., str]) -> None:
        def call(n: int, who: str) -> None:
            raise kind(say(n, who))

        assert causes(call, (1, "a"), (1, "not found"), (1, "Bad Ems")) == 1
        assert causes(call, (1, "a"), (2, "a"), (3, "a")) == 3

    def test_of_errors_in_an_enumeration(self) -> None:
        def charge(why: Why, who: str) -> None:
            raise RuntimeError(f"the {why.value} of {who}")

        assert causes(charge, (Why.EXPIRED, "a"), (Why.EXPIRED, "b c")) == 1
        assert causes(charge, (Why.EXPIRED, "a"), (Why.STOLEN, "a")) == 2

    def test_of_data_though_one_of_it_reads_like_an_error(self) -> None:
        def down(n: int) -> None:
            raise RuntimeError(f"worker node {PLACES[n]} lost its {n} disks")

        assert causes(down, 0, 1, 2, 3) == 1

    def test_a_path_before_a_value_is_part_of_it(self) -> None:
        def left(n: int, name: str) -> None:
            place = "/srv/" + name if n % 2 else name
            raise RuntimeError(f"{n} files left in {place}")

        assert causes(left, (2, "x"), (3, "x"), (5, "inbox")) == 1


class TestWhatItCameFrom:
    def parse(self, who: str, kind: int) -> None:
        if kind == 1:
            raise ValueError(f"{who} has no header")
        raise ValueError(f"rows of {who} are out of order")

    def test_is_quoted_as_it_was_written(self) -> None:
        def load(who: str, kind: int) -> None:
            try:
                self.parse(who, kind)
            except ValueError as error:
                raise RuntimeError(f"{who}: {error}") from error

        assert causes(load, ("not found", 1), ("no such file", 1), ("a", 1)) == 1
        assert causes(load, ("a", 1), ("a", 2)) == 2

    def test_members_of_a_group_that_came_together_by_chance_do_not(self) -> None:
        def load(*kinds: int) -> None:
            errors: list[ValueError] = []
            for kind in kinds:
                try:
                    self.parse("a", kind)
                except ValueError as error:
                    errors.append(error)
            raise ExceptionGroup("several", errors)

        assert causes(load, (1, 2), (2, 1), (1, 1, 2)) == 1
        assert causes(load, (1,), (2,)) == 2


class TestNotEachTime:
    """What may be left out, and what stands for a value, does not count."""

    @pytest.mark.parametrize(
        "say",
        [
            lambda who, why: f"{who} has left" + (f" because of {why}" if why else ""),
            lambda who, why: f"{who} has left" + ("" if not why else f" because of {why}"),
            lambda who, why: f"{who} has left, {why or 'nobody knows why'}",
            lambda who, why: f"{who} has left, {why if why else DEFAULT}",
            lambda who, why: " ".join(part for part in (who, "has left", why) if part),
        ],
    )
    def test_in_an_expression(self, say: Callable[..., str]) -> None:
        def leave(who: str, why: str | None) -> None:
            raise RuntimeError(say(who, why))

        assert causes(leave, ("a", None), ("b c", "late payment"), ("d", "New York")) == 1

    def test_in_an_addition(self) -> None:
        def leave(who: str, why: str) -> None:
            text = f"{who} has left"
            if why:
                text += f" because of {why}"
            raise RuntimeError(text)

        assert causes(leave, ("a", ""), ("b c", "late payment"), ("d", "New York")) == 1


def without_columns(code: CodeType) -> CodeType:
    """The same code as ``python -X no_debug_ranges`` makes it: lines and no columns."""
    table = bytearray()
    before = code.co_firstlineno
    for line, *_ in code.co_positions():
        step = 0 if line is None else line - before
        before += step
        number = (-step << 1) | 1 if step < 0 else step << 1
        table.append(0x80 | 13 << 3)
        while number >= 64:
            table.append(0x40 | number & 0x3F)
            number >>= 6
        table.append(number)
    return code.replace(co_linetable=bytes(table))


def test_lines_are_enough() -> None:
    def empty(n: int, who: str) -> None:
        place = WAREHOUSES[n]
        why = "" if n else "a holiday"
        raise ValueError(f"{place} is empty, {who} waits" + (f" because of {why}" if why else ""))

    empty.__code__ = without_columns(empty.__code__)
    assert all(column is None for *_, column in empty.__code__.co_positions())
    assert causes(empty, (0, "Al"), (1, "Bad Ems"), (2, "x")) == 1


def test_a_function_that_nobody_wrote_is_not_read() -> None:
    lines = (f"    x = 'text {n}' if who else ''\n" for n in range(MAX_CODE // 8))
    made: dict[str, Any] = {"__name__": "made"}
    exec(f"def made(who):\n{''.join(lines)}    raise ValueError(f'{{who}} is gone')\n", made)
    assert fingerprint(made["made"], "Al")


def test_tables_of_any_size_cost_a_bounded_number_of_looks() -> None:
    looks = iter(range(MAX_LOOKS))
    numbers = [[list(range(60)) for _ in range(60)] for _ in range(60)]
    assert list(_texts_of(numbers, looks)) == [] and next(looks, None) is None

    def refused(row: int) -> None:
        raise ValueError(f"row {row in numbers} was refused: {ERRORS[row]}")

    assert causes(refused, 1, 2, 3) == 3, "the table of errors is read nevertheless"
