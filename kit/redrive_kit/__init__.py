"""For those who build on redrive or want to see it: examples, simulators, load, labs, and the tests of stores.

Nothing of it runs in production: redrive knows its commands by name, and says what to install where it is missing.
"""

__version__ = "0.1.0"
