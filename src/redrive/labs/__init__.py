"""Experiments on the running system: labs that anyone can repeat, and a soak. Nothing but their commands is
redrive's own: they use it as an operator does, with real processes, and look at what must be seen.

Every process loads this module; what it names by text is loaded by whoever runs them.
"""

from redrive.kernel.feature import Feature

LABS = Feature(
    "labs",
    __name__,
    commands="redrive.labs.commands:lab",
    about="Experiments that anyone can repeat: workers are killed, sinks are stopped, what must be seen is asserted.",
    command="lab",
    tasks=False,
)
SOAK = Feature(
    "soak",
    "redrive.labs.soak",
    commands="redrive.labs.soak.command:soak",
    about="A mixed load with faults for some minutes; the invariants are checked all the time.",
    tasks=False,
)
__all__ = ["LABS", "SOAK"]
