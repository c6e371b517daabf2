"""``App`` as a type checker sees it: with what the features that come with redrive put on it.

Never imported when a program runs: an application finds these by the names of its features, and ``App`` itself knows
none of them. A test compares this with what they say.
"""

from __future__ import annotations

from typing import Any

from redrive import app, sync
from redrive.batches.app_batch import Batches
from redrive.batches.remote.application import RemoteBatches
from redrive.ledger.application import AppLedger
from redrive.outbox.application import Outbox
from redrive.webhooks.application import Webhooks


class SyncApp(sync.SyncApp):
    """The same names to be called without await."""

    batch: Any
    ledger: Any
    outbox: Any
    remote_batches: Any
    webhooks: Any


class App(app.App):
    batch: Batches
    ledger: AppLedger
    outbox: Outbox
    remote_batches: RemoteBatches
    webhooks: Webhooks
    sync: SyncApp
