"""``redrive smoke``: does a running instance work, from end to end?"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any
from uuid import uuid4

import typer

from redrive.cli.support import output
from redrive.cli.support.instance import Client, CommandFailed, InProduction, Refused, refuse_production, run_command
from redrive.cli.support.options import AppName, Json, Url, Yes
from redrive.errors import RedriveError

Check = Callable[["Smoke"], str]
EXIT_UNAVAILABLE = 3  # the exit code of a command that cannot reach its store
FINAL_STATES = ("completed", "failed", "cancelled")


class Failed(RedriveError):
    code = "SMOKE_FAILED"


class Skipped(Exception):
    pass


class Smoke:
    def __init__(self, client: Client, patience: float, url: str | None = None, app: str | None = None) -> None:
        self.client = client
        self.patience = patience
        self.url, self.app = url, app
        self.scope = f"smoke-{uuid4().hex[:12]}"

    def run(self, kind: str, payload: Any = None, **options: Any) -> dict[str, Any]:
        body = {"kind": kind, "payload": {} if payload is None else payload, "scope": self.scope, **options}
        try:
            made = self.client.post("/api/tasks", body)
        except Refused as error:
            if error.code == "KIND_UNKNOWN":
                raise Skipped(f"the application has no {kind}") from None
            raise
        found = self.client.wait(made["id"], FINAL_STATES, self.patience)
        if (state := found["task"]["state"]) not in FINAL_STATES:
            raise Failed(f"after {self.patience:g} s {kind} is {state}: {self._waits(found)}")
        return found

    def _waits(self, found: dict[str, Any]) -> str:
        why = "; ".join(reason["text"] for reason in found["why"])
        return f"it waits in queue {found['task']['queue']}" + (f" ({why})" if why else "")

    def command(self, *arguments: str) -> Any:
        """The command line as a process of its own, on the store that it finds here."""
        return run_command(*arguments, url=self.url, app=self.app)

    def failed_again(self, task_id: str) -> dict[str, Any]:
        """Waits for the second dead letter of a task that was retried; returns the task."""
        ends = time.monotonic() + self.patience
        while True:
            found: dict[str, Any] = self.client.get(f"/api/tasks/{task_id}")
            if found["task"]["state"] == "failed" and len(found["deadLetters"]) == 2:
                return found
            if time.monotonic() > ends:
                queue = found["task"]["queue"]
                raise Failed(f"the retry was not consumed in {self.patience:g} s by a worker of queue {queue}")
            time.sleep(0.1)

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
    smoke.insist(smoke.failed_again(task_id), replayCount=1)
    return "failed with its code and a dead letter; a retry was consumed again"


def business(smoke: Smoke) -> str:
    smoke.insist(smoke.run("SHOT_SET_STATUS", {"shot_id": smoke.scope, "status": "review"}), state="completed")
    found = smoke.run("SHOT_STATUS", {"shot_id": smoke.scope})
    smoke.insist(found, state="completed", result="review")
    return "completed, and the row says so"


def attempts(smoke: Smoke) -> str:
    found = smoke.run("SYSTEM_FAIL_ALWAYS", maxAttempts=2)
    smoke.insist(found, state="failed", deadReason="max_attempts_exceeded", attemptCount=2)
    return "failed twice, and ended as max_attempts_exceeded"


def command_line(smoke: Smoke) -> str:
    """What an operator would type: find the failure, read its story, retry it."""
    task_id = smoke.run("SYSTEM_FAIL_ALWAYS", maxAttempts=1)["task"]["id"]
    try:
        told = smoke.command("show", task_id)
    except CommandFailed as error:
        if error.ended_with == EXIT_UNAVAILABLE:
            raise Skipped(f"no store from here: {error.message}; say which: --url or --app") from None
        raise Failed(f"{error.message}; is it the instance's store? --url or --app says which") from None
    if told["task"]["state"] != "failed" or not told["dead_letters"]:
        raise Failed(f"redrive show says {told['task']['state']}, with {len(told['dead_letters'])} dead letters")
    try:
        listed = [task["id"] for task in smoke.command("failed", "--scope", smoke.scope)["items"]]
        if task_id not in listed:
            raise Failed(f"redrive failed does not list it among {len(listed)}")
        smoke.command("retry", task_id, "--by", "smoke", "--reason", "smoke")
    except CommandFailed as error:
        raise Failed(error.message) from None
    smoke.failed_again(task_id)
    return "show, failed and retry see what the API sees, and a worker consumed the retry"


def tidy(smoke: Smoke) -> str:
    """Nobody should have to wonder in the morning about failures that were made on purpose."""
    made = smoke.client.get(f"/api/tasks?scope={smoke.scope}&limit=100")["tasks"]
    left = [task for task in made if task["state"] not in ("completed", "cancelled")]
    for task in left:
        smoke.client.post(f"/api/tasks/{task['id']}/cancel", {"reason": "smoke"})
    waiting = sum(task["state"] != "failed" for task in left)
    return f"{len(left)} test tasks given up" + (f", {waiting} of them before they had ended" if waiting else "")


CHECKS: dict[str, Check] = {
    "health check": health,
    "unsupported kind and retry": unsupported,
    "business row": business,
    "attempts run out": attempts,
    "command line": command_line,
    "tidy up": tidy,
}


def smoke(
    instance: Annotated[str, typer.Argument(metavar="HTTP-URL", help="The instance.")] = "http://127.0.0.1:8321",
    token: Annotated[str | None, typer.Option("--token", metavar="T", help="Else REDRIVE_TOKEN, else none.")] = None,
    patience: Annotated[float, typer.Option("--patience", metavar="SECONDS", min=0.1, help="For each task.")] = 30.0,
    in_production: InProduction = False,
    yes: Yes = False,
    strict: Annotated[bool, typer.Option("--strict", help="A skipped check fails the command, too.")] = False,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Check a running instance from end to end, through its API and through this command line, which finds the store by
    --url or --app. Its tasks are marked by their scope; failed ones are given up."""
    own = Smoke(Client(instance, token or os.environ.get("REDRIVE_TOKEN")), patience, url, app)
    refuse_production("redrive smoke", own.client, in_production, yes)
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
    found = Counter(result["verdict"] for result in results)
    if json:
        output.emit(
            {
                "scope": own.scope,
                "checks": results,
                "ok": found["ok"],
                "skipped": found["skipped"],
                "failed": found["failed"],
            }
        )
    else:
        output.say(_summary(found, [result["check"] for result in results if result["verdict"] == "skipped"]))
    if found["failed"] or (strict and found["skipped"]):
        raise typer.Exit(1)


def _summary(found: Counter[str], skipped: list[str]) -> str:
    """The last line: whoever reads nothing else must not take skipped for passed."""
    told = [f"{found[verdict]} {verdict}" for verdict in ("ok", "failed", "skipped") if found[verdict]]
    return f"{found.total()} checks: {', '.join(told)}" + (f" ({', '.join(skipped)})" if skipped else "")
