"""The service of ops for all faces (HTTP, command line, console): every look and every action goes through it.

An action checks the caller's role, what needs a second person, and the names it was given; it writes its audit row in
the same transaction and returns what came of it. Faces parse and print.
"""

from redrive.ops.operator.operator import Operator

__all__ = ["Operator"]
