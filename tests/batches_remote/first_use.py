"""A worker that says what it imported after its first claim: ``python first_use.py SETTINGS``, a JSON text.

It writes ``ready`` when it has looked for work and found none, and the modules when its input is closed."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from redrive import App
from redrive.batches.settings import BatchSettings
from redrive.settings import load_settings
from redrive.webhooks.settings import WebhookSettings


async def main(given: dict[str, Any]) -> None:
    settings = load_settings(url=given["url"], log_format="off", providers=given["providers"])
    own = BatchSettings(poll_first=0.0, poll_next=0.0, poll_later=0.0)
    app = App(settings=settings.holding(own, WebhookSettings(**given["webhooks"])))
    async with app.worker() as worker:
        await worker.lifecycle.claiming.wait()
        before = set(sys.modules)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(json.dumps(sorted(set(sys.modules) - before)), flush=True)
    await app.close()


asyncio.run(main(json.loads(sys.argv[1])))
