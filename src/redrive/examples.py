"""Where the examples were before they became a part of redrive-kit."""

from redrive.errors import KitNeeded

raise KitNeeded("redrive.examples is redrive_kit.examples now", hint="pip install redrive-kit, and use that name")
