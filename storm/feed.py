"""The storm's end of the producer: what it was told, and what it wrote down."""

from __future__ import annotations

import select
from dataclasses import dataclass
from pathlib import Path

from redrive_kit.labs import journal
from storm.fleet import COMMON
from storm.processes import Program, TooLate, environment


@dataclass(slots=True, frozen=True)
class Ack:
    task_id: str
    kind: str
    at: float


class Feed:
    """One producer process at a time; one that was killed is followed by the next, with keys of its own."""

    def __init__(self, url: str, directory: Path, seed: int) -> None:
        self.url = url
        self.directory = directory
        self._seed = seed
        self._started = 0
        self._read = 0
        self._open = 0
        self.rate = 0.0
        self.program: Program | None = None

    def start(self) -> None:
        """Does not wait: commands queue up in the pipe until the process reads them."""
        self._started += 1
        self._read = self._open = 0
        label = f"p{self._started}"
        env = environment(**COMMON, REDRIVE_URL=self.url, STORM_DIR=str(self.directory))
        arguments = ["storm.load", str(self.directory), label, str(self._seed + self._started)]
        self.program = Program(label, arguments, env, self.directory / f"producer-{label}.log", talks=True)

    def wait_ready(self, timeout: float = 30) -> None:
        self._expect("ready", timeout)

    def offer(self, rate: float) -> None:
        self.rate = rate
        self.tell(f"rate {rate}")

    def pause(self, timeout: float) -> None:
        """Offer nothing more; returns when every offer was acknowledged."""
        self.rate = 0.0
        self.tell("pause")
        self._expect("paused", timeout)

    def burst(self, count: int, timeout: float) -> float:
        """Enqueue so many as fast as possible; answers the seconds it took."""
        self.tell(f"burst {count}")
        return float(self._expect("burst", timeout).split()[1])

    def tell(self, line: str) -> None:
        assert self.program is not None
        self.program.tell(line)

    def kill(self) -> None:
        if self.program is not None:
            self.program.kill()

    def _expect(self, word: str, timeout: float) -> str:
        assert self.program is not None
        assert self.program.process.stdout is not None
        ready, _, _ = select.select([self.program.process.stdout], [], [], timeout)
        said = self.program.hear() if ready else ""
        if not said.startswith(word):
            log = self.program.log.read_text(errors="replace")[-2000:]
            raise TooLate(f"the producer did not say {word!r} within {timeout:g} s but {said!r}\n{log}")
        return said

    # -- what it wrote down ----------------------------------------------------------------------------------------

    def acks(self) -> list[Ack]:
        return [
            Ack(line[3], line[2], float(line[4])) for line in journal.read(self.directory, "offers") if line[0] == "ack"
        ]

    def offers(self) -> dict[str, float]:
        """When each key was offered for the first time."""
        return {line[1]: float(line[3]) for line in journal.read(self.directory, "offers") if line[0] == "offer"}

    def unanswered(self) -> int:
        """Offers of the living producer that wait for their acknowledgement."""
        if self.program is None:
            return 0
        path = self.directory / f"offers-{self.program.name}.journal"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read)
                news = file.read()
            self._read += len(news)
            self._open += news.count(b"offer\t") - news.count(b"ack\t")
        return self._open

    def refusals(self) -> dict[str, int]:
        """How often the store said no, by the error's type."""
        found: dict[str, int] = {}
        for line in journal.read(self.directory, "offers"):
            if line[0] == "refused":
                found[line[2]] = found.get(line[2], 0) + 1
        return found
