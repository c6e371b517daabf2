"""Which failures are one cause: the rules, one by one; tests/failures/test_corpus.py measures them together."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from redrive import Fail, Retry
from redrive.kernel import frames
from redrive.kernel.classify import FailureRules
from redrive.kernel.failure import Facts, Failure, Origin, failure, fingerprint
from redrive.worker.failures import failed, log_rule_error


def caught(call: Any, *args: Any, origin: Origin | None = None) -> Failure:
    try:
        call(*args)
    except BaseException as error:
        return failed(error, origin or Origin()).failure
    raise AssertionError("nothing was raised")


def prints(*found: Failure) -> int:
    return len({one.fingerprint for one in found})


def pay(text: str) -> None:
    raise RuntimeError(f"card {text} was declined by the bank")


def refund(text: str) -> None:
    raise RuntimeError(f"card {text} was declined by the bank")


class TestWhatCounts:
    def test_the_place_counts_and_the_line_does_not(self) -> None:
        assert prints(caught(pay, "a"), caught(pay, "b")) == 1
        assert prints(caught(pay, "a"), caught(refund, "a")) == 2
        there = {"__name__": "shop.pay"}
        lines: list[Failure] = []
        for above in (0, 30):
            exec(compile("\n" * above + "def pay(): raise RuntimeError('no')", "/srv/shop/pay.py", "exec"), there)
            lines.append(caught(there["pay"]))
        assert prints(*lines) == 1

    def test_each_fact_counts(self) -> None:
        base = Facts("C", "r", ("E",), ("a:b",), {"status": 1}, None, "m")
        others = [
            replace(base, code="D"),
            replace(base, exceptions=("F",)),
            replace(base, exceptions=("E", "G")),
            replace(base, frames=("a:c",)),
            replace(base, marks={"status": 2}),
            replace(base, marks={"errno": 1}),
            replace(base, message="n"),
            replace(base, message=None),
            replace(base, written="m"),
            replace(base, cause="x"),
        ]
        assert len({fingerprint(facts) for facts in (base, *others)}) == len(others) + 1
        assert fingerprint(replace(base, reason="deterministic_exception")) == fingerprint(base)

    def test_discriminators_of_messages_without_an_exception(self) -> None:
        def told(text: str) -> Failure:
            return failure("TASK_EXECUTION_FAILED", "told", text)

        assert prints(told("HTTP 404 for x1"), told("HTTP 404 for x2")) == 1
        for one, two in (
            ("HTTP 404 for x1", "HTTP 403 for x1"),
            ("[Errno 2] x1", "[Errno 13] x1"),
            ("exit status 1", "exit status 137"),
            ("SQLSTATE 23505", "SQLSTATE 40001"),
        ):
            assert prints(told(one), told(two)) == 2

    def test_a_message_of_something_that_was_called_does_not_count(self) -> None:
        def parse(text: str) -> int:
            return int.from_bytes(text.encode(), "weird") if text == "x" else int(text)  # type: ignore[arg-type]

        assert prints(caught(parse, "y"), caught(parse, "x")) == 1


class TestPeers:
    def one(self, port: int) -> None:
        httpx.get(f"http://127.0.0.1:{port}/orders/17")

    def two(self, port: int) -> None:
        async def run() -> None:
            async with httpx.AsyncClient() as client:
                await client.post(f"http://127.0.0.1:{port}/stock")

        asyncio.run(run())

    def test_one_dead_server_is_one_cause_however_it_is_called(self, servers: Any) -> None:
        dead, other = servers.closed("x"), servers.closed("y")
        found = [caught(self.one, dead), caught(self.two, dead), caught(lambda: self.one(dead))]
        assert prints(*found) == 1
        assert prints(*found, caught(self.one, other)) == 2

    def test_without_a_peer_the_place_counts(self) -> None:
        def first() -> None:
            raise TimeoutError

        def second() -> None:
            raise TimeoutError

        assert prints(caught(first), caught(second)) == 2

    def test_a_driver_that_lost_its_server_does_not_say_which(self) -> None:
        import asyncpg

        def first() -> None:
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

        def second() -> None:
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

        assert prints(caught(first), caught(second)) == 1


class TestOwnFrames:
    def frame(self, filename: str, name: str) -> Any:
        made: dict[str, Any] = {"__name__": name, "sys": sys}
        exec(compile("def here(): return sys._getframe()", filename, "exec"), made)
        return made["here"]()

    @pytest.mark.parametrize(
        "filename, module, package, expected",
        [
            ("/srv/shop/pay.py", "shop.pay", None, True),
            ("/usr/lib/python3/dist-packages/requests/api.py", "requests.api", None, False),
            ("/v/lib/python3.11/site-packages/shop/pay.py", "shop.pay", None, False),
            ("/v/lib/python3.11/site-packages/shop/pay.py", "shop.pay", "shop", True),
            ("/v/lib/python3.11/site-packages/shopping/pay.py", "shopping.pay", "shop", False),
            (str(Path(asyncio.__file__)), "asyncio", None, False),
            (str(Path(frames.__file__)), "redrive.kernel.frames", None, False),
            ("/v/site-packages/redrive_kit/examples/shots.py", "redrive_kit.examples.shots", "redrive_kit", True),
            ("<frozen importlib._bootstrap>", "importlib._bootstrap", None, False),
            ("<string>", "collections.abc", None, False),
            ("<string>", "shop.pay", None, True),
            ("<ipython-input-3>", "__main__", None, True),
            ("C:\\shop\\pay.py", "shop.pay", None, True),
        ],
    )
    def test_whose(self, filename: str, module: str, package: str | None, expected: bool) -> None:
        assert frames.own(self.frame(filename, module), package) == expected

    def test_an_application_that_is_installed_is_still_its_own(self) -> None:
        made = ModuleType("shop.pay")
        path = "/v/lib/python3.11/site-packages/shop/pay.py"
        exec(compile("def a(): raise KeyError(1)\ndef b(): raise KeyError(1)", path, "exec"), vars(made))
        origin = Origin("shop.tasks")
        one, two = caught(made.a, origin=origin), caught(made.b, origin=origin)
        assert one.summary["frames"][-1] == "shop.pay:a"
        assert prints(one, two) == 2


class TestOfTheApplication:
    def test_a_verdict_may_name_its_cause(self) -> None:
        def one() -> None:
            raise Fail("X", "this", cause="warehouse")

        def two() -> None:
            raise Fail("Y", "that", cause="warehouse")

        assert prints(caught(one), caught(two)) == 1

    def test_a_function_may_name_it(self) -> None:
        rules = FailureRules(fingerprint=[lambda error: "bank" if "bank" in str(error) else None])
        origin = Origin(rules=rules)
        assert prints(caught(pay, "a", origin=origin), caught(refund, "b", origin=origin)) == 1
        assert prints(caught(int, "a", origin=origin), caught(int, "a")) == 1

    @pytest.mark.parametrize("answer", [17, "", ZeroDivisionError()])
    def test_one_that_does_not_is_passed_over_and_logged(self, answer: Any, caplog: pytest.LogCaptureFixture) -> None:
        def broken(_: BaseException) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        rules = FailureRules(fingerprint=[broken], on_error=log_rule_error)
        with caplog.at_level(logging.WARNING):
            assert prints(caught(pay, "a", origin=Origin(rules=rules)), caught(pay, "b")) == 1
        assert "broken" in caplog.text and "fingerprint" in caplog.text

    def test_a_retry_keeps_its_place_too(self) -> None:
        def one() -> None:
            raise Retry("not yet")

        def two() -> None:
            raise Retry("not yet")

        found = caught(one)
        assert "in one" in (found.stack or "") and found.summary["frames"][-1].endswith("one")
        assert prints(found, caught(two)) == 2


class TestVersions:
    def test_a_cause_keeps_its_name_while_its_rule_stays(self) -> None:
        """Notes and mutes are found by these."""
        plain = Facts("C", "r", ("E",), ("a:b",), {"status": 1})
        lost = Facts("C", "connect", ("OSError",), ("app:call",), peer="db:80")
        assert fingerprint(plain) == "2e579758e8b10b02"
        assert fingerprint(replace(plain, message="m")) == "2b280f7c12c2773c"
        assert fingerprint(lost) == "2f9009d14937df10"
        assert {fingerprint(replace(lost, peer=f"10.0.0.{n}:80")) for n in (7, 8)} == {"304dcc328a57b5c3"}
        assert fingerprint(replace(plain, cause="x")) == "22200cbca007a546"
        assert fingerprint(replace(plain, written="w")) == "4592a61847a87b0c"
