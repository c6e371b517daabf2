"""Settles and claims in one commit: the worker's hot loop."""

from __future__ import annotations

from uuid import UUID

from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import ClaimRequest, Cycle
from redrive.stores.sqlite.apply import apply
from redrive.stores.sqlite.claim import claim
from redrive.stores.sqlite.session import Session
from redrive.stores.sqlite.settle import settle


def cycle(session: Session, commit: Commit, want: ClaimRequest | None, again: bool) -> Cycle:
    lost = _apply(session, commit, again)
    claimed = claim(session, want) if want is not None and want.count > 0 else []
    return Cycle(claimed, lost, instead=session.instead)


def _apply(session: Session, commit: Commit, again: bool) -> set[UUID]:
    if commit.only_transitions:
        return settle(session, commit.transitions, again=again) if commit.transitions else set()
    return apply(session, commit, again=again).lost
