"""Values of a body are counted without what stands in texts, and nothing of it is looked at twice."""

from __future__ import annotations

import json

import pytest
from starlette.exceptions import HTTPException

from redrive.api.body_limit import _TEXT, MOST_VALUES, refuse_many_values
from redrive.kernel.payload import _STRING

COMMAS = b"," * (MOST_VALUES + 1)


def test_commas_in_texts_do_not_count() -> None:
    refuse_many_values([json.dumps({"a": "," * (MOST_VALUES + 1), "b": '\\",\\', "c": '"'}).encode()])


@pytest.mark.parametrize(
    "text", [b'"', b'"' + b'\\"' * 30_000, b'"' + b"\\" * 30_001, b'"' * 3 + b"\\\\" * 9], ids=range(4)
)
def test_a_text_without_an_end_is_one_text_to_the_end(text: bytes) -> None:
    """Each quote in it would else be the begin of another that goes to the end: quadratic."""
    with pytest.raises(HTTPException, match="values"):
        refuse_many_values([COMMAS + text])
    assert len(_TEXT.findall(text)) <= 2
    assert len(_STRING.findall(text.decode())) <= 2
    refuse_many_values([text + COMMAS])
