"""Gives each set of SQL functions a rising number, and keeps what was released as it is.

``functions/number.txt`` has the number of a set and a digest of its files. Whoever changes a file runs ``./dev docs``,
which writes the next number: databases replace an older set with a newer one, and never the other way round. A released
step never changes (``tools/released_steps.txt`` has their digests), and a released function keeps its arguments and
results (``tools/released_functions.txt``), because workers of the version before still call it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path

REDRIVE = Path(__file__).parents[1] / "src/redrive"
RELEASED_STEPS = Path(__file__).with_name("released_steps.txt")
RELEASED_FUNCTIONS = Path(__file__).with_name("released_functions.txt")
_SIGNATURE = re.compile(r"^create or replace function redrive\.(\w+\(.*?)\blanguage\b", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"(\d{4}_\w+)\.up\.sql")


class Refused(Exception):
    """What the author of a change has to do."""


def step_folders() -> dict[str, Path]:
    """Returns where steps are: of the stores, and of each feature by store."""
    found = {store: REDRIVE / "stores" / store / "migrations" for store in ("postgres", "sqlite")}
    of_features = sorted(REDRIVE.glob("*/migrations/*/"))
    return found | {f"{folder.parents[1].name}/{folder.name}": folder for folder in of_features if labels(folder)}


def function_folders() -> list[Path]:
    return [REDRIVE / "stores/postgres/functions", *sorted(REDRIVE.glob("*/functions/*/"))]


def labels(folder: Path) -> list[str]:
    return sorted(found[1] for path in folder.iterdir() if (found := _STEP.fullmatch(path.name)))


def step_digest(folder: Path, label: str) -> str:
    halves = [(folder / f"{label}.{half}.sql").read_bytes() for half in ("up", "down")]
    return hashlib.sha256(b"".join(halves)).hexdigest()[:16]


def set_digest(folder: Path) -> str:
    texts = [path.name.encode() + path.read_bytes() for path in sorted(folder.glob("*.sql"))]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:16]


def numbered(folder: Path) -> tuple[int, str]:
    """Returns the number of a set, and the digest of the files that got it."""
    path = folder / "number.txt"
    number, digest = path.read_text(encoding="utf-8").split() if path.exists() else ("0", "")
    return int(number), digest


def signatures() -> dict[str, str]:
    """Returns arguments and results of each function, by how it is called."""
    found = {}
    for folder in function_folders():
        for path in sorted(folder.glob("*.sql")):
            for one in _SIGNATURE.findall(path.read_text(encoding="utf-8")):
                text = " ".join(re.sub(r"--[^\n]*", "", one).split())
                found[text] = path.name
    return found


def changed_steps() -> list[str]:
    """Returns the released steps that are no longer what was released."""
    folders = step_folders()
    rows = (line.split() for line in RELEASED_STEPS.read_text(encoding="utf-8").splitlines() if line)
    return [
        f"{name} {label}"
        for name, label, known in rows
        if name not in folders or label not in labels(folders[name]) or step_digest(folders[name], label) != known
    ]


def lost_functions() -> list[str]:
    """Returns the released functions that are gone, or have other arguments or results."""
    now = signatures()
    return [line for line in RELEASED_FUNCTIONS.read_text(encoding="utf-8").splitlines() if line and line not in now]


def write() -> None:
    """Gives each set that has changed its next number."""
    for folder in function_folders():
        number, digest = numbered(folder)
        if (now := set_digest(folder)) != digest:
            (folder / "number.txt").write_text(f"{number + 1} {now}\n", encoding="utf-8")


def release() -> None:
    """Notes steps and functions as released, as they are."""
    rows = [
        f"{name} {each} {step_digest(folder, each)}\n"
        for name, folder in step_folders().items()
        for each in labels(folder)
    ]
    RELEASED_STEPS.write_text("".join(rows), encoding="utf-8")
    RELEASED_FUNCTIONS.write_text("".join(f"{one}\n" for one in sorted(signatures())), encoding="utf-8")


def check() -> None:
    stale = [folder for folder in function_folders() if numbered(folder)[1] != set_digest(folder)]
    if stale:
        raise Refused(
            f"{stale[0].relative_to(REDRIVE)}: its files have changed since it got its number; run ./dev docs"
        )
    if changed := changed_steps():
        raise Refused(f"{', '.join(changed)}: a released step was changed; put it back and write a new one")
    if lost := lost_functions():
        raise Refused(
            f"redrive.{lost[0]}: this released function is gone or changed, and workers that run while the database is "
            "migrated call it. Give the new one another name and keep the old"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="The numbers of SQL functions, and what is released of the schema.")
    parser.add_argument("--write", action="store_true", help="give each set that has changed its next number")
    parser.add_argument("--release", action="store_true", help="from now on no step that is there may change")
    given = parser.parse_args()
    if given.write:
        write()
    if given.release:
        release()
    try:
        check()
    except Refused as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
