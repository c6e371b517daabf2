"""Actions of features that a second operator may have to agree to.

Such an action is asked for as a record that says what is to be done, with which arguments. Whoever agrees carries it
out: what it does and the decision are one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit

Land = Callable[[Commit], Awaitable[Applied]]  # applies a Commit, together with what has to land with it


@dataclass(slots=True, frozen=True)
class Asked:
    """What somebody asked for: the arguments, who it was, and why."""

    arguments: Mapping[str, Any]
    by: str
    reason: str | None


@dataclass(slots=True, frozen=True)
class ApprovedAction:
    """One action of a feature. ``carry_out`` gets the session of who agrees, what was asked for, and how its Commit is
    applied: it checks the role of who agrees, acts in the name of who asked, and refuses what is not possible any more;
    then the request goes on waiting."""

    name: str
    carry_out: Callable[[Any, Asked, Land], Awaitable[None]]


@dataclass(slots=True, frozen=True)
class Request:
    """An action of a feature as it is asked for. ``title`` says it in a few words ("adjust acme by -5 credits"),
    ``told`` what would happen; ``page`` is where the console shows what it is about, ``scope`` whom it is about."""

    feature: str
    action: str
    arguments: Mapping[str, Any]  # a JSON document of names, ids and numbers: an erasure leaves it as it is
    number: int
    title: str
    told: str
    page: str | None = None
    scope: str | None = None
