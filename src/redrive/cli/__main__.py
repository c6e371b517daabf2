"""``python -m redrive.cli``: how a supervisor starts its workers."""

from redrive.cli.main import main

main()
