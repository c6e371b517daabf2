"""One attempt of a delivery: the endpoint as it is now, its secrets, the request, and the log of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.errors import StoreError
from redrive.handlers.context import Context
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.outcome import Cancel, Fail, Snooze
from redrive.kernel.reactions import Rows
from redrive.kernel.wording import clean
from redrive.observe.feature_metrics import count
from redrive.webhooks.mask_secrets import COVERED, covered
from redrive.webhooks.metrics import ATTEMPTS
from redrive.webhooks.send_request import Answer, post
from redrive.webhooks.settings import WebhookSettings
from redrive.webhooks.signing import signatures_in, signed_headers, without_signatures
from redrive.webhooks.stored_secrets import KeyMissing, decrypt

logger = logging.getLogger("redrive.webhooks")
UNSIGNED = "WEBHOOK_NO_SECRET"
LEFT_FOR_S = 10.0  # a delivery that this process cannot sign, for those that can: no attempt is used up
LONGEST_HEADER, MOST_HEADERS = 300, 30
# Headers of an answer that may be somebody's key.
_SECRET_HEADERS = frozenset({"set-cookie", "authorization", "proxy-authorization", "www-authenticate", "cookie"})


@dataclass(slots=True, frozen=True)
class DeliveryAttempt:
    ctx: Context
    endpoint: Mapping[str, Any]
    keys: Sequence[str]
    settings: WebhookSettings

    @classmethod
    async def load(cls, ctx: Context, endpoint_id: str, forced: bool) -> DeliveryAttempt:
        """Returns the endpoint with its secrets; ends the delivery where it gets nothing any more."""
        rows = await ctx.store.sql.feature_rows("webhooks", "endpoint", endpoint_id)
        ending = disabled(rows[0] if rows else None)
        if ending is not None and not (rows and forced):
            raise ending
        settings = ctx.settings.of(WebhookSettings)
        task = ctx.task
        own = await ctx.store.sql.feature_rows("webhooks", "delivery_keys", str(task.id), str(task.token))
        try:
            keys = [decrypt(settings.secret_keys, key) for key in keys_of(own, settings.secret)]
        except KeyMissing as missing:
            logger.error(
                "delivery %s is left to another process: %s",
                ctx.task_id,
                missing.message,
                extra={"event": "webhooks.no_key", "task_id": str(ctx.task_id), "hint": missing.hint},
            )
            raise Snooze(LEFT_FOR_S, state={"why": f"{missing.message}: {missing.hint}"}) from None
        if not keys:
            raise Fail(UNSIGNED, "no secret to sign with: redrive webhooks rotate, or ENTERPRISE_WEBHOOK_SECRET")
        return cls(ctx, rows[0], keys, settings)

    async def send(self, event_id: str, timestamp: int, body: bytes) -> Answer:
        """Sends the request, and writes down what was sent and answered."""
        headers = {
            "content-type": "application/json",
            **signed_headers(self.keys, event_id, timestamp, body),
        }
        answer = await post(self.endpoint["url"], body, headers, self.settings, owner=self.endpoint["account"])
        count(ATTEMPTS, outcome_class(answer.outcome))
        await self._write_down(headers, answer, body)
        return answer

    async def _write_down(self, headers: Mapping[str, str], answer: Answer, body: bytes) -> None:
        """Keeps the attempt. Where the store cannot be reached it is missing from the log: that is no reason to send
        the event once more."""
        row = self._row(headers, answer, body)
        try:
            await self.ctx.store.apply(Commit(rows=[Rows("webhooks", "attempted", (row,))]))
        except StoreError:
            logger.warning(
                "an attempt of delivery %s is not logged",
                self.ctx.task_id,
                extra={"event": "webhooks.not_logged", "task_id": str(self.ctx.task_id)},
                exc_info=True,
            )

    def _row(self, headers: Mapping[str, str], answer: Answer, body: bytes) -> dict[str, Any]:
        sent = without_signatures(headers, COVERED)
        request = {"url": self.endpoint["url"], "address": answer.address, "headers": sent, "bytes": len(body)}
        if answer.delivered and len(body) <= self.settings.body_bytes:
            request["body"] = body.decode()  # its task, which ends now, has it no longer

        def shown(text: str) -> str:
            return covered(clean(text), self.keys, signatures_in(headers))

        return {
            "id": str(new_id()),
            "task": str(self.ctx.task_id),
            "attempt": self.ctx.attempt,
            "replay": self.ctx.task.replay_count,
            "outcome": answer.outcome,
            "status": answer.status,
            "ms": answer.ms,
            "request": json.dumps(request),
            "response": None
            if answer.status is None
            else json.dumps(response_of(answer, shown, self.settings.log_bytes)),
            "error": None if answer.error is None else shown(answer.error)[:1000],
        }


def keys_of(rows: Sequence[Mapping[str, Any]], default: str | None) -> list[str]:
    """Returns the secrets to sign with: the endpoint's own, else its account's, else that of the settings."""
    for owner in ("endpoint:", "account:"):
        if found := [str(row["secret"]) for row in rows if row["owner"].startswith(owner)]:
            return found
    return [default] if default else []


def response_of(answer: Answer, shown: Callable[[str], str], most: int) -> dict[str, Any]:
    """Returns what is kept of an answer, with everything that could be a key covered; cut afterwards, since of a secret
    at the edge the first half would stay."""
    headers = {
        shown(name)[:LONGEST_HEADER]: COVERED if name in _SECRET_HEADERS else shown(value)[:LONGEST_HEADER]
        for name, value in list(answer.headers.items())[:MOST_HEADERS]
    }
    body = shown(answer.body.decode("utf-8", "replace")).encode()[:most].decode("utf-8", "ignore")
    return {"headers": headers, "body": body, "cut": answer.cut}


def outcome_class(outcome: str) -> str:
    """Returns an outcome as metrics have it: few, whatever servers answer with."""
    return f"http_{outcome[5]}xx" if outcome.startswith("http_") else outcome


def disabled(endpoint: Mapping[str, Any] | None) -> Cancel | None:
    """Returns how a delivery ends whose endpoint gets nothing any more; an operator can have it sent later."""
    if endpoint is None:
        return Cancel("the endpoint was removed")
    return Cancel("the endpoint is disabled") if endpoint["state"] == "disabled" else None
