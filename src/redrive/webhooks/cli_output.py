"""Prints endpoints and deliveries for people."""

from __future__ import annotations

from typing import Any

from redrive.feature.cli import output


def print_endpoint(one: dict[str, Any]) -> None:
    """Says everything about an endpoint."""
    output.say(f"endpoint {one['id']} of {one['account']}: {one['state']}", f"  url      {one['url']}")
    output.say(f"  events   {', '.join(one['events'])}")
    if one["description"]:
        output.say(f"  about    {one['description']}")
    if one["state"] == "disabled":
        why = f": {one['disabled_reason']}" if one["disabled_reason"] else ""
        output.say(f"  disabled {output.when(one['disabled_at'])} by {one['disabled_by']}{why}")
    if one["failing_since"]:
        output.say(f"  fails    since {output.when(one['failing_since'])}, without a success")
    output.say(f"  signed   {_signed(one)}")


def _signed(one: dict[str, Any]) -> str:
    if one["signed_by"] is None:
        return "by nothing: there is no secret (redrive webhooks rotate)"
    if one["signed_by"] == "settings":
        return "with ENTERPRISE_WEBHOOK_SECRET"
    whose = "its own secret" if one["signed_by"] == "endpoint" else "the secret of its account"
    ending = [output.when(secret["expires_at"]) for secret in one["secrets"] if secret["expires_at"]]
    return f"with {whose}" + (f", and until {', '.join(ending)} with the one before" if ending else "")


def print_delivery(one: dict[str, Any]) -> None:
    """Says what became of a delivery, request by request."""
    output.say(
        f"delivery {one['id']}: {one['task'] or one['state']}",
        f"  event    {one['event']} ({one['type']}) to {one['endpoint']} of {one['account']}",
    )
    if one["next_attempt_at"] and one["state"] == "pending":
        output.say(f"  next     {output.when(one['next_attempt_at'])}")
    for attempt in one["attempts"]:
        _print_attempt(attempt)
    if one["body"] is not None:
        output.say("body", f"  {output.shorten(one['body'], 2000)}")


def _print_attempt(one: dict[str, Any]) -> None:
    told = f"HTTP {one['status']}" if one["status"] is not None else one["outcome"]
    again = f", after {one['replay']} redeliveries" if one["replay"] else ""
    output.say(f"attempt {one['attempt']}{again}: {told} in {one['ms']:g} ms, {output.when(one['at'])}")
    if one.get("error"):
        output.say(f"  {output.shorten(one['error'], 300)}")
    for name, value in ((one.get("request") or {}).get("headers") or {}).items():
        output.say(f"  > {name}: {value}")
    answer = one.get("response")
    for name, value in (answer["headers"] if answer else {}).items():
        output.say(f"  < {name}: {value}")
    if answer and answer["body"]:
        output.say(f"  < {output.shorten(answer['body'], 1000)}{' …' if answer['cut'] else ''}")


def print_deliveries(rows: list[dict[str, Any]]) -> None:
    """Prints deliveries as a table."""
    output.table(
        ["delivery", "made", "type", "endpoint", "state", "#attempts"],
        [
            (
                one["id"],
                output.when(one["created_at"]),
                one["type"],
                one["endpoint"],
                one["task"] or one["state"],
                _tries(one),
            )
            for one in rows
        ],
    )


def _tries(one: dict[str, Any]) -> str:
    return "" if one["attempt_count"] is None else f"{one['attempt_count']}/{one['max_attempts']}"
