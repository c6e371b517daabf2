"""``python -m storm.skewed SECONDS work …``: redrive with a wrong clock, for machines without libfaketime."""

from __future__ import annotations

import sys

# Built before the clock is replaced: pydantic looks at the identity of datetime.
import pydantic.main  # noqa: F401
from tests.faults.runner import skew_clock


def main() -> None:
    skew_clock(float(sys.argv.pop(1)))
    from redrive.cli.main import main as redrive

    redrive()


if __name__ == "__main__":
    main()
