"""Settles and claims in one commit: the worker's hot loop."""

from __future__ import annotations

from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import ClaimRequest, Cycle
from redrive.stores.sqlite.apply import apply
from redrive.stores.sqlite.claim import claim
from redrive.stores.sqlite.session import Session
from redrive.stores.sqlite.settle import settle


def cycle(session: Session, commit: Commit, want: ClaimRequest | None, again: bool) -> Cycle:
    applied = _apply(session, commit, again)
    return Cycle(claim(session, want) if want is not None and want.count > 0 else [], applied.lost)


def _apply(session: Session, commit: Commit, again: bool) -> Applied:
    if commit.only_transitions:
        return Applied(lost=settle(session, commit.transitions, again=again) if commit.transitions else set())
    return apply(session, commit, again=again)
