"""Pauses and resumes a queue, a kind or a group of tasks."""

from __future__ import annotations

from redrive.api import models as m
from redrive.api.access import By


async def set_pause(target: str, name: str, on: bool, by: By) -> m.HoldChange:
    """Pauses (``on``) or resumes; returns whether that changed anything."""
    change = by.operator.control.pause if on else by.operator.control.resume
    return m.HoldChange(target=target, name=name, paused=on, changed=await change(target, name, by.reason))
