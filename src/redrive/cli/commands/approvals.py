"""``redrive approvals``: what waits for a second operator, listed, approved, rejected."""

from __future__ import annotations

from redrive.cli.declared import group_of
from redrive.ops.operator.approvals import ApprovalService

approvals_cli = group_of(ApprovalService)
