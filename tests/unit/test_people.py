"""Names of people, told apart as people read them."""

from __future__ import annotations

import pytest

from redrive.errors import InvalidInput
from redrive.ops.actions import check_actor
from redrive.ops.people import mixed_scripts, person

CYRILLIC_A = "\N{CYRILLIC SMALL LETTER A}"


@pytest.mark.parametrize(
    "other", ["Ann", " ann ", "a\u200bnn", f"{CYRILLIC_A}nn", "\N{CYRILLIC CAPITAL LETTER A}NN", "\uff41nn"]
)
def test_one_person(other: str) -> None:
    assert person(other) == person("ann")


def test_a_whole_name_in_letters_that_look_like_others() -> None:
    drawn = "\N{CYRILLIC SMALL LETTER ES}\N{CYRILLIC SMALL LETTER A}\N{CYRILLIC SMALL LETTER ER}"
    assert person(drawn) == "cap" and mixed_scripts(drawn) == []


@pytest.mark.parametrize(
    "name",
    [
        "ann",
        "os:ann",
        "Ann-Marie O\u2019Neil",
        "J\u00f6rg",
        "\u0410\u043d\u043d\u0430",
        "\u7530\u4e2d ann",
        "\u7530\u306a\u30ab",
        "a.b@c",
        "4711",
    ],
)
def test_names_that_may_act(name: str) -> None:
    assert check_actor(name) == name


@pytest.mark.parametrize(
    ("name", "scripts"),
    [(f"{CYRILLIC_A}nn", "cyrillic, latin"), ("\N{GREEK SMALL LETTER OMICRON}tto", "greek, latin")],
)
def test_names_in_several_scripts_are_refused(name: str, scripts: str) -> None:
    with pytest.raises(InvalidInput, match=f"is written in several scripts: {scripts}"):
        check_actor(name)
