"""``python -m redrive.cli``: how a supervisor starts its workers."""

from redrive.cli.entry import main

main()
