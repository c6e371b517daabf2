"""Names of growth cases, for progress and reports."""

from __future__ import annotations

from typing import Any


def label(case: dict[str, Any]) -> str:
    match case["case"]:
        case "plain":
            return "nothing else in the queue"
        case "kinds":
            return f"{case['kinds']} kinds"
        case "payload":
            return f"payloads of {case['bytes']:,} bytes"
        case "history":
            return f"{case['rows']:,} in history"
        case "saturated":
            return f"{case['rows']:,} of a saturated kind ahead"
        case name:
            return f"{case['rows']:,} {name}"
