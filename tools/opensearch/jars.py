"""Gets the programs of OpenSearch by their Maven coordinates, once."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".tools" / "opensearch"


class NoOpenSearch(Exception):
    """No server could be had; says why, and what to do."""


def jars() -> Path:
    """Returns the folder with everything that a node needs; gets it with Maven where it is not there yet."""
    pom = HERE / "pom.xml"
    folder = FOLDER / f"lib-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        _copy(pom, partial)
        partial.rename(folder)
    return folder


def _copy(pom: Path, into: Path) -> None:
    maven = program("mvn", "maven")
    command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={into}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-10:])
        raise NoOpenSearch(f"Maven could not get OpenSearch:\n{said}\nBehind a mirror: set it in ~/.m2/settings.xml.")


def program(name: str, package: str) -> str:
    """Returns the path of a program, or says what to install."""
    found = shutil.which(name)
    if found is None:
        raise NoOpenSearch(f"{name} is not on PATH; it runs OpenSearch here (on Debian: apt install {package})")
    return found
