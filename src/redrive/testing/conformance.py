"""Where the tests of stores were before they became a part of redrive-kit."""

from redrive.errors import KitNeeded

raise KitNeeded(
    "redrive.testing.conformance is redrive_kit.conformance now", hint="pip install redrive-kit, and use that name"
)
