"""Lines of CSV that a spreadsheet can be given."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterable

_FORMULA = frozenset("=+-@")
_CONTROLS = ("\t", "\r", "\n")


def csv_line(cells: Iterable[object]) -> str:
    """Returns one line of a CSV, all in quotes; what a spreadsheet would take for a formula begins with an
    apostrophe. Lists and dicts are written as JSON."""
    out = io.StringIO()
    # All in quotes: a spreadsheet that takes ; for the separator must not find one inside a cell.
    csv.writer(out, lineterminator="\r\n", quoting=csv.QUOTE_ALL).writerow([_cell(one) for one in cells])
    return out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value) if isinstance(value, dict | list) else str(value)
    return "'" + text if not isinstance(value, int | float) and _is_formula(text) else text


def _is_formula(text: str) -> bool:
    """Returns whether a spreadsheet may calculate a cell: some pass over blanks and what is invisible, and take wide
    and small forms (``＝``) for the usual ones."""
    first = next((one for one in text if not one.isspace() and unicodedata.category(one) not in ("Cc", "Cf")), "")
    return text.startswith(_CONTROLS) or unicodedata.normalize("NFKC", first) in _FORMULA
