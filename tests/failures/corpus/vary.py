"""What differs between two failures of the same cause: ids, paths, numbers, times, names, lists."""

from __future__ import annotations

import random
import string
import uuid
from datetime import UTC, datetime, timedelta

_BASE62 = string.ascii_letters + string.digits
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_NAMES = (
    "alice bob carol dave erin frank grace heidi ivan judy mallory niaj olivia peggy quentin rupert sybil trent ursula "
    "victor walter xavier yvonne zelda Søren Jürgen"
).split()
_WORDS = (
    "amber basalt cedar delta ember fjord garnet hazel indigo jasper kelp lagoon maple nectar opal pine quartz".split()
)


class Vary:
    """A source of values; the same number gives the same values."""

    def __init__(self, cause: str, number: int) -> None:
        self.number = number
        self.random = random.Random(f"{cause}/{number}")
        self.lines = self.random.choice([0, 0, 1, 7, 40])
        self.how = ("direct", "thread", "loop")[number % 3]
        self.depth = self.random.randrange(0, 6)

    def __call__(self, low: int = 0, high: int = 100_000) -> int:
        return self.random.randrange(low, high)

    def pick(self, *options: object) -> object:
        return self.random.choice(options)

    def base62(self, length: int = 14) -> str:
        return "".join(self.random.choice(_BASE62) for _ in range(length))

    def cus(self, prefix: str = "cus") -> str:
        return f"{prefix}_{self.base62()}"

    def ulid(self) -> str:
        return "01" + "".join(self.random.choice(_CROCKFORD) for _ in range(24))

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def hex(self, length: int = 7) -> str:
        return "".join(self.random.choice("0123456789abcdef") for _ in range(length))

    def name(self) -> str:
        return self.random.choice(_NAMES)

    def word(self) -> str:
        return self.random.choice(_WORDS)

    def sku(self) -> str:
        return f"{self.word().upper()[:3]}-{self(10, 9999)}"

    def mail(self) -> str:
        return f"{self.name()}.{self.word()}{self(1, 99)}@{self.word()}.example.{self.pick('com', 'org', 'co')}"

    def path(self) -> str:
        parts = [self.pick("/var/data", "/tmp/in", "/srv/files", "/home/u"), *(self.word() for _ in range(self(1, 4)))]
        return "/".join(map(str, parts)) + self.pick(
            f"/{self.hex()}.csv", f"/report-{self(1, 99)}.pdf", f"/{self.word()}"
        )

    def s3(self) -> str:
        return f"s3://{self.word()}-{self.word()}/{self.word()}/{self.uuid() if self.number % 2 else self.word()}"

    def ipv4(self) -> str:
        return ".".join(str(self(1, 255)) for _ in range(4))

    def ipv6(self) -> str:
        groups = [f"{self.random.getrandbits(16):x}" for _ in range(8)]
        return self.pick(":".join(groups), f"2001:db8::{groups[0]}", f"fe80::{groups[1]}:{groups[2]}%eth0", "::1")

    def when(self) -> str:
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self(0, 30_000_000))
        return at.strftime(
            str(self.pick("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%a, %d %b %Y %H:%M:%S GMT", "%b %d %H:%M:%S"))
        )

    def amount(self) -> str:
        return str(
            self.pick(f"{self(1, 9999)}.{self(10, 99)}", f"-{self(1, 50)}", f"{self(1, 9)},{self(100, 999)}.50", "0")
        )

    def many(self, low: int = 1, high: int = 9) -> list[object]:
        make = self.pick(lambda: self(1, 9999), self.word, self.uuid, lambda: self(1, 99) / 8)
        return [make() for _ in range(self(low, high))]  # type: ignore[operator]

    def text(self) -> str:
        """Something a person typed."""
        return " ".join(self.word() for _ in range(self(1, 5)))
