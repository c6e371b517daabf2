"""The example of remote batches: shots that somebody else's farm renders, paid for as they succeed.

    redrive up --app redrive_kit.examples.renders:app --demo

The demo starts a simulated farm and the customer's receiver of webhooks on this machine, gives two customers an
account, and orders three batches: one of forty shots, a larger one, and one that its account cannot pay. What happens
when the farm is down can be tried meanwhile:

    curl 127.0.0.1:8330/_control -d '{"down_for": 30}'
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from redrive import App
from redrive.batches.remote.application import RemoteBatches
from redrive.ledger.application import AppLedger
from redrive.settings import load_settings
from redrive.webhooks.application import Webhooks
from redrive.webhooks.settings import WebhookSettings
from redrive_kit.simulators.provider.behaviour import table_of

FARM_PORT = int(os.environ.get("FARM_PORT", "8330"))
RECEIVER_PORT = int(os.environ.get("RECEIVER_PORT", "8331"))
FARM, RECEIVER = f"http://127.0.0.1:{FARM_PORT}", f"http://127.0.0.1:{RECEIVER_PORT}/hook"
# A farm as farms are: some seconds for each shot, and now and then one that does not work out.
BEHAVIOUR = {"duration": 12.0, "failures": {"model_error": 0.05, "param_error": 0.03, "timeout": 0.02}}
SHOTS = {"Trailer": 40, "The whole film": 400}
PRICE = 5
LOOK = ("batch list", "ledger accounts", "webhooks deliveries", "doctor")  # commands that ``redrive up`` proposes

logger = logging.getLogger("renders")
# As [providers.farm] in redrive.toml would say. The receiver is on this machine, where webhooks go if that is allowed.
_settings = load_settings(providers={"farm": table_of(FARM)}).holding(WebhookSettings(allow_networks=["127.0.0.0/8"]))
app = App(name="renders", settings=_settings)


async def demo() -> None:
    """Begins the farm, the receiver and three batches. A second start finds what is there."""
    _begin(_farm, FARM_PORT)
    _begin(_receive, RECEIVER_PORT)
    await _open("studio", 5000)
    await _open("newcomer", 20)
    if not await app.of(Webhooks).endpoints("studio"):
        await app.of(Webhooks).add(RECEIVER, account="studio", description="what the studio is told")
    for name, count in SHOTS.items():
        await _order("studio", name, count)
    await _order("newcomer", "More than it can pay", 10)


async def _open(account: str, credit: int) -> None:
    await app.of(AppLedger).open(account)
    await app.of(AppLedger).credit(account, credit, f"demo:{account}", reason="to try it")


async def _order(account: str, name: str, count: int) -> None:
    shots = [{"shot": f"s-{number}", "frames": 24 * (1 + number % 5)} for number in range(1, count + 1)]
    await app.of(RemoteBatches).create(
        shots, provider="farm", account=account, price=PRICE, name=name, key=f"demo:{name}"
    )


def _begin(serve: Callable[[socket.socket], None], port: int) -> None:
    """Has somebody else listen, in a thread that ends with this process; unless the port is taken, as by the farm of
    another start."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError:
        listening.close()
        return
    threading.Thread(target=serve, args=(listening,), daemon=True).start()


def _farm(listening: socket.socket) -> None:
    import uvicorn

    from redrive_kit.simulators.provider.behaviour import Behaviour
    from redrive_kit.simulators.provider.server import Simulator

    simulator = Simulator(Behaviour(), keep=_farm_file())
    simulator.change(BEHAVIOUR)
    config = uvicorn.Config(simulator.app(), log_config=None, log_level="critical", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])


def _farm_file() -> Path | None:
    """Returns where the farm remembers its jobs over a restart: beside the file of the store, if that is one. In
    PostgreSQL the items outlive the farm, and end when they were polled twenty times."""
    _, sqlite, path = app.settings.url.partition("?")[0].partition("sqlite:///")
    return Path(f"{path}.farm") if sqlite and path and not path.startswith(":") else None


class _Receiver(BaseHTTPRequestHandler):
    """Says what the customer was told. A real one would verify the signature first: docs/webhooks.md."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        told = body.get("data", {})
        logger.info("the studio was told: %s, %s", body.get("type"), told.get("name"), extra={"event": "renders.told"})
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the console's page of the delivery says it."""


def _receive(listening: socket.socket) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    server.server_activate()
    server.serve_forever()
