"""Dataclasses come back from their documents as they were; what somebody else has written is refused or left out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

import pytest

from redrive.kernel.documents import from_document, to_document
from redrive.kernel.task import State


@dataclass(frozen=True)
class Part:
    at: datetime
    state: State | None = None


@dataclass(frozen=True)
class Whole:
    kind: ClassVar[str] = "whole"
    id: UUID
    part: Part
    parts: tuple[Part, ...] = ()
    pairs: Mapping[str, Sequence[tuple[datetime, int]]] = field(default_factory=dict)
    anything: Any = None


NOW = datetime(2026, 3, 1, tzinfo=UTC)
WHOLE = Whole(UUID(int=7), Part(NOW), (Part(NOW, State.FAILED),), {"q": [(NOW, 5)]}, {"a": [1, None]})


def test_there_and_back() -> None:
    document = json.loads(json.dumps(to_document(WHOLE)))
    assert document["parts"] == [{"at": NOW.isoformat(), "state": "failed"}]
    assert from_document(Whole, document) == WHOLE
    assert from_document(Part, {"at": NOW.isoformat()}) == Part(NOW), "what is not there has its default"


def test_what_another_version_has_added_is_left_out_or_refused() -> None:
    newer = {**to_document(WHOLE), "unheard": 1}
    assert from_document(Whole, newer) == WHOLE
    with pytest.raises(TypeError, match="Whole has no unheard"):
        from_document(Whole, newer, strict=True)


@pytest.mark.parametrize("wrong", [{"id": "x"}, {"part": {"at": "soon"}}, {"parts": [{}]}, {"pairs": {"q": [[1]]}}])
def test_what_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        from_document(Whole, {**to_document(WHOLE), **wrong})
