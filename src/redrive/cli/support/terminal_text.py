"""Text for a terminal: without anything that it would obey."""

from __future__ import annotations

import re

# Sequences that a terminal obeys: CSI, OSC and other strings up to their end, two-byte escapes; 8-bit forms too.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)


def clean(value: object, *, lines: bool = False) -> str:
    """Returns text for a terminal: one line unless ``lines``, without anything that is not a visible character."""
    text = _SEQUENCE.sub("", str(value))
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else " " if c.isspace() else "\ufffd" for c in text)
