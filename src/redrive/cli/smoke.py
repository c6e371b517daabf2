"""``redrive smoke``: does a running instance work, from end to end? (T17b)"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Annotated, Any
from uuid import uuid4

import typer

from redrive.cli import output
from redrive.cli.http import Client, Refused
from redrive.cli.options import Json
from redrive.errors import RedriveError

Check = Callable[["Smoke"], str]
FINAL = ("completed", "failed", "cancelled")


class Failed(RedriveError):
    code = "SMOKE_FAILED"


class Skipped(Exception):
    pass


class Smoke:
    def __init__(self, client: Client, patience: float) -> None:
        self.client = client
        self.patience = patience
        self.scope = f"smoke-{uuid4().hex[:12]}"

    def run(self, kind: str, payload: Any = None, **options: Any) -> dict[str, Any]:
        body = {"kind": kind, "payload": {} if payload is None else payload, "scope": self.scope, **options}
        try:
            made = self.client.post("/api/tasks", body)
        except Refused as error:
            if error.code == "KIND_UNKNOWN":
                raise Skipped(f"the application has no {kind}") from None
            raise
        return self.client.wait(made["id"], FINAL, self.patience)

    def insist(self, found: dict[str, Any], **wanted: Any) -> None:
        task = found["task"]
        for name, value in wanted.items():
            if task.get(name) != value:
                why = "; ".join(reason["text"] for reason in found["why"])
                raise Failed(f"{name} is {task.get(name)!r}, not {value!r}" + (f" ({why})" if why else ""))


def health(smoke: Smoke) -> str:
    found = smoke.run("SYSTEM_HEALTH_CHECK")
    smoke.insist(found, state="completed")
    return f"completed by {found['task']['workerId']}"


def unsupported(smoke: Smoke) -> str:
    found = smoke.run("VIDEO_GEN", {"shot_id": smoke.scope})
    smoke.insist(found, state="failed", errorCode="TASK_PAYLOAD_UNSUPPORTED", deadReason="non_retryable")
    letters = [letter["reason"] for letter in found["deadLetters"]]
    if letters != ["non_retryable"]:
        raise Failed(f"dead letters are {letters}, not one non_retryable")
    task_id = found["task"]["id"]
    smoke.client.post(f"/api/tasks/{task_id}/retry", {"reason": "smoke"})
    ends = time.monotonic() + smoke.patience
    while time.monotonic() < ends:
        again = smoke.client.get(f"/api/tasks/{task_id}")
        if again["task"]["state"] == "failed" and len(again["deadLetters"]) == 2:
            smoke.insist(again, replayCount=1)
            return "failed with its code and a dead letter; a retry was consumed again"
        time.sleep(0.1)
    raise Failed("the retry was not consumed")


def business(smoke: Smoke) -> str:
    smoke.insist(smoke.run("SHOT_SET_STATUS", {"shot_id": smoke.scope, "status": "review"}), state="completed")
    found = smoke.run("SHOT_STATUS", {"shot_id": smoke.scope})
    smoke.insist(found, state="completed", result="review")
    return "completed, and the row says so"


def attempts(smoke: Smoke) -> str:
    found = smoke.run("SYSTEM_FAIL_ALWAYS", maxAttempts=2)
    smoke.insist(found, state="failed", deadReason="max_attempts_exceeded", attemptCount=2)
    return "failed twice, and ended as max_attempts_exceeded"


def tidy(smoke: Smoke) -> str:
    """Nobody should have to wonder in the morning about failures that were made on purpose."""
    left = smoke.client.get(f"/api/tasks/failed?scope={smoke.scope}&limit=100")["tasks"]
    for task in left:
        smoke.client.post(f"/api/tasks/{task['id']}/cancel", {"reason": "smoke"})
    return f"{len(left)} failed test tasks given up"


CHECKS: dict[str, Check] = {
    "health check": health, "unsupported kind and retry": unsupported, "business row": business,
    "attempts run out": attempts, "tidy up": tidy,
}  # fmt: skip


def smoke(
    instance: Annotated[str, typer.Argument(metavar="HTTP-URL", help="The instance.")] = "http://127.0.0.1:8321",
    token: Annotated[str | None, typer.Option("--token", metavar="T", help="Else REDRIVE_TOKEN, else none.")] = None,
    patience: Annotated[float, typer.Option("--patience", metavar="SECONDS", min=0.1, help="For each task.")] = 30.0,
    json: Json = False,
) -> None:  # fmt: skip
    """Check a running instance from end to end. Its tasks are marked by their scope; failed ones are given up."""
    own = Smoke(Client(instance, token or os.environ.get("REDRIVE_TOKEN")), patience)
    results: list[dict[str, str]] = []
    for name, check in CHECKS.items():
        try:
            verdict, detail = "ok", check(own)
        except Skipped as reason:
            verdict, detail = "skipped", str(reason)
        except Failed as error:
            verdict, detail = "failed", error.message
        results.append({"check": name, "verdict": verdict, "detail": detail})
        if not json:
            output.say(f"{verdict:<8} {name}: {detail}")
    if json:
        output.emit({"scope": own.scope, "checks": results})
    if any(result["verdict"] == "failed" for result in results):
        raise typer.Exit(1)
