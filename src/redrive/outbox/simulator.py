"""Where the simulated search server was before it became a part of redrive-kit."""

from redrive.errors import KitNeeded

raise KitNeeded(
    "redrive.outbox.simulator is redrive_kit.simulators.search now", hint="pip install redrive-kit, and use that name"
)
