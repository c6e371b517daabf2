"""Looking through the wrapping of a driver's error."""

from __future__ import annotations

from redrive.integrations.own_commit import causes


def test_a_circle_of_causes_ends() -> None:
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    assert list(causes(one)) == [one, other]
    one.__cause__ = one
    assert list(causes(one)) == [one]


def test_what_a_library_wraps_comes_before_what_it_was_raised_from() -> None:
    class Wrapped(Exception):
        orig: object = None

    outer, inner, origin = Wrapped(), OSError(), KeyError()
    outer.orig, outer.__cause__ = inner, origin
    assert list(causes(outer)) == [outer, inner]
    outer.orig = "no exception"
    assert list(causes(outer)) == [outer, origin]
