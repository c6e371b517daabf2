"""The colours that texts have on what they stand on: a contrast of 4.5 at least, in both themes, also while dimmed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

TOKENS = (files("redrive.console") / "static" / "tokens.css").read_text()
PAIRS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", TOKENS)
}
GROUNDS = ("ground", "panel", "raised", "sunken")
COLOURS = ("text", "quiet", "accent", "bad", "warn", "good", "busy", "calm")
LEAST = 4.5
Rgb = tuple[float, float, float]


def rgb(colour: str) -> Rgb:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def luminance(colour: Rgb) -> float:
    def linear(part: float) -> float:
        share = part / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Rgb, other: Rgb) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def through(colour: Rgb, opacity: float, ground: Rgb) -> Rgb:
    red, green, blue = (part * opacity + below * (1 - opacity) for part, below in zip(colour, ground, strict=True))
    return red, green, blue


def grey(colour: Rgb) -> Rgb:
    level = 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]
    return level, level, level


def meetings() -> Iterator[tuple[str, str]]:
    """Which colour of a text stands on which ground."""
    yield from ((colour, ground) for colour in COLOURS for ground in GROUNDS)
    yield from ((colour, f"{colour}-soft") for colour in COLOURS if f"{colour}-soft" in PAIRS)
    yield from (("text", name) for name in PAIRS if name.endswith("-soft"))
    yield "accent-ink", "accent"


def test_every_token_is_known() -> None:
    assert {name for pair in meetings() for name in pair} <= PAIRS.keys()


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_can_be_read(theme: int) -> None:
    found = {pair: contrast(rgb(PAIRS[pair[0]][theme]), rgb(PAIRS[pair[1]][theme])) for pair in meetings()}
    assert {pair: round(one, 2) for pair, one in found.items() if one < LEAST} == {}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_what_is_dimmed_can_still_be_read(theme: int) -> None:
    """Text and what it stands on are both made grey, and let through what is below: a panel."""
    told = re.search(r"--dimmed: ([\d.]+);", TOKENS)
    assert told
    opacity, below = float(told[1]), rgb(PAIRS["panel"][theme])
    found = {}
    for colour, ground in meetings():
        if ground in ("sunken", "accent", "accent-soft", "raised", "ground"):
            continue  # nothing that is dimmed stands on these
        one, other = (through(grey(rgb(PAIRS[name][theme])), opacity, below) for name in (colour, ground))
        found[colour, ground] = contrast(one, other)
    assert {pair: round(one, 2) for pair, one in found.items() if one < LEAST} == {}
