"""Lines of CSV: no cell becomes a formula."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from redrive.ops.csv_lines import csv_line


def cell(value: Any) -> str:
    [[found]] = csv.reader([csv_line([value])])
    return found


FORMULAS = ["=1", "+1", "-1", "@a", "\u00a0=1", "\t =1", "\n=1"]
HIDDEN = ["\u200b=1", "\ufeff=1", "\u202e=1"]
WIDE = ["＝1", "＠a", "﹦1"]


@pytest.mark.parametrize("text", [*FORMULAS, *HIDDEN, *WIDE])
def test_what_a_spreadsheet_may_calculate_begins_with_an_apostrophe(text: str) -> None:
    assert csv_line([text]).startswith("\"'")


@pytest.mark.parametrize("text", ["a=1", "1-2", "", " ", "ann@example.com", "'=1", "(=1)", "Zoë"])
def test_other_texts_stay(text: str) -> None:
    assert cell(text) == text


def test_documents_are_json() -> None:
    assert cell({"a": "=1"}) == '{"a": "=1"}' and cell(["=1"]) == '["=1"]'


@pytest.mark.parametrize("number", [-1, -1.5, 0])
def test_numbers_stay_numbers(number: float) -> None:
    assert cell(number) == str(number)
