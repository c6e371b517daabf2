"""Experiments on the running system: labs that anyone can repeat, and a soak. They use redrive as an operator does,
with real processes, and look at what must be seen."""

from redrive.kernel.feature import Feature

# What brings their statements: nobody's but the application's that they look with.
LABS = Feature("labs", __name__, tasks=False)
__all__ = ["LABS"]
