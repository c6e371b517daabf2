"""Declares what people can look at and do, once: a method of a service, with its words, its role and its fields.

Three faces are derived from a declaration: the HTTP route (``redrive.api.declared``), the command
(``redrive.cli.declared``) and the form of the console (``redrive.console.declared``). The method stays an ordinary one.
Whoever calls it, from a face or from code, is asked for his role first, and what he gives is checked.

    class AccountService(Service):
        @action("POST /api/accounts/{name}/credit", said="account {name} has {done.available} now")
        async def credit(self, name: AccountName, amount: Amount, reason: Reason = None) -> AccountView:
            \"\"\"Add units to an account.\"\"\"
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from functools import cached_property, partial, wraps
from typing import Annotated, Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from redrive.kernel.operation import COLLECTION as OPERATIONS
from redrive.kernel.records import Record
from redrive.kernel.task import Task, check_text
from redrive.ops import views
from redrive.ops.access import Role
from redrive.ops.given import Given as Given
from redrive.ops.given import Parameter as Parameter
from redrive.ops.given import parameter
from redrive.ops.history import check_period
from redrive.ops.operator.session import Service
from redrive.ops.views import Closed as Closed
from redrive.ops.views import Open as Open
from redrive.ops.views import Shown as Shown
from redrive.ops.views import Sight, View
from redrive.ops.views import shown_fields as shown_fields

M = TypeVar("M", bound=Callable[..., Awaitable[Any]])
V = TypeVar("V")
_IN_PATH = re.compile(r"\{(\w+)\}")
_DECLARED = "__declared__"


Reason = Annotated[
    str | None, Given("Why, for the audit log.", label="why", metavar="TEXT", check=partial(check_text, what="reason"))
]
OfQueue = Annotated[str | None, Given("Of this queue.", metavar="NAME")]
OfKind = Annotated[str | None, Given("Of this kind.", metavar="KIND")]
Period = Annotated[str, Given("1h, 24h, 7d, 30d or 1y, up to now.", metavar="PERIOD", check=check_period)]
Limit = Annotated[int, Given("How many at most.", label="the limit", metavar="N", least=1, most=500)]


@dataclass(slots=True, frozen=True)
class Page(Generic[V]):
    """A part of a list; ``next`` is what the parameter ``after`` or ``before`` continues with, None at its end. Fields
    that a class of its own adds are about the whole list."""

    items: Annotated[list[V], Open()]
    next: Annotated[str | int | None, Open()]

    @property
    def note(self) -> str:
        """What is said below its table."""
        return ""


@dataclass(frozen=True)
class Declared:
    """A declared method: where it is found, who may call it, and what is said of it."""

    verb: str  # the method's name
    http: str  # "POST /api/circuits/{name}/open"
    role: Role
    function: Callable[..., Awaitable[Any]]
    command: str
    said: str = ""  # once it is done: ``{done}`` is what came of it, and parameters have their names
    page: str = ""  # of the console, to which it leads
    empty: str = ""  # of a list
    items: str = "items"  # the field of a page over HTTP that has them; none: they are the document, see ``Link``
    status: int = 200
    whole: bool = False  # it is about a whole connection: where there are several, a command has to say which
    creates: bool = False  # its command may make the file of a store, with --create

    @property
    def method(self) -> str:
        return self.http.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.http.partition(" ")[2]

    @property
    def has_body(self) -> bool:
        """Whether what is not in the path comes in a body; else in the query."""
        return self.method not in ("GET", "DELETE")

    @property
    def routes(self) -> list[tuple[str, dict[str, str]]]:
        """The paths of its routes, each with the values of parameters that its words stand for."""
        found: list[tuple[str, dict[str, str]]] = [(self.path, {})]
        for one in self.parameters:
            if one.given.paths:
                found = [
                    (path.replace(f"{{{one.name}}}", word), fixed | {one.name: value})
                    for path, fixed in found
                    for word, value in one.given.paths.items()
                ]
        return found

    @property
    def looks(self) -> bool:
        """Whether it changes nothing."""
        return self.method == "GET"

    @property
    def help(self) -> str:
        return " ".join((self.function.__doc__ or "").split())

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        hints = get_type_hints(self.function, include_extras=True)
        in_path = set(_IN_PATH.findall(self.path))
        taken = list(inspect.signature(self.function).parameters.values())[1:]
        return tuple(parameter(one.name, hints[one.name], one.default, in_path=one.name in in_path) for one in taken)

    @cached_property
    def result(self) -> Any:
        """The type of what it returns: a view, a list of them, a task."""
        return get_type_hints(self.function)["return"]

    @property
    def lists(self) -> bool:
        return issubclass(get_origin(self.result) or object, (list, Page))

    @property
    def continued_by(self) -> str | None:
        """The parameter by which the next page is asked for, where a list comes in pages."""
        return next((one.name for one in self.parameters if one.name in ("after", "before")), None)

    @property
    def following(self) -> str:
        """The field of a page over HTTP that continues it."""
        return "next" if self.items == "items" else f"next_{self.continued_by}"

    @property
    def view(self) -> Any:
        """The type of one thing that it returns."""
        return get_args(self.result)[0] if self.lists else self.result

    def sentence(self, given: Mapping[str, Any], done: Any) -> str:
        """Returns what is said once it is done, as the rest of a sentence: names stay as they are written."""
        if getattr(done, "approval", None) is not None:
            return (
                f"it waits for a second operator, because {done.approval.body['needed']}; nothing was done\n"
                f"somebody else: redrive approvals approve {done.approval.id} --by NAME"
            )
        text = self.said.format(**{one.name: one.default for one in self.parameters} | dict(given), done=done)
        return text if getattr(done, "changed", True) else f"nothing to do: {text}"


def look(
    http: str,
    *,
    role: Role = Role.VIEWER,
    empty: str = "",
    command: str = "",
    said: str = "",
    items: str = "items",
) -> Callable[[M], M]:
    """Declares what somebody may look at. ``empty``: what is said where a list has nothing; ``said``: what the command
    line says of one thing, in place of its fields; ``items``: see ``Declared``."""

    def declare(method: M) -> M:
        return _declare(method, http=http, role=role, empty=empty, command=command, said=said, items=items)

    return declare


def action(
    http: str,
    *,
    said: str,
    role: Role = Role.OPERATOR,
    command: str = "",
    page: str = "",
    status: int = 200,
    whole: bool = False,
    creates: bool = False,
) -> Callable[[M], M]:
    """Declares what somebody may do."""

    def declare(method: M) -> M:
        told = {"said": said, "page": page, "status": status, "whole": whole, "creates": creates}
        return _declare(method, http=http, role=role, command=command, **told)

    return declare


def _declare(method: M, *, role: Role, command: str, **told: Any) -> M:
    name = method.__name__
    declared = Declared(verb=name, role=role, function=method, command=command or name.replace("_", "-"), **told)
    signature = inspect.signature(method)

    @wraps(method)
    async def checked(self: Service, *args: Any, **kwargs: Any) -> Any:
        self._session.may(role)
        bound = signature.bind(self, *args, **kwargs)
        for one in declared.parameters:
            if one.name in bound.arguments:
                bound.arguments[one.name] = one.given.taken(bound.arguments[one.name], one.label)
        return seen(await method(*bound.args, **bound.kwargs), self._session.sight)

    setattr(checked, _DECLARED, declared)
    return cast(M, checked)


def declared_by(service: type[Service]) -> dict[str, Declared]:
    """Returns what a service declares, by the names of its methods, in their order."""
    found = {name: getattr(member, _DECLARED, None) for name, member in vars(service).items()}
    return {name: one for name, one in found.items() if one is not None}


def view_of(view: type[V], row: Any, **more: Any) -> V:
    """Returns a view of a row: its fields are the row's of the same names, and ``more``."""
    known: Any = view
    return view(**{one.name: getattr(row, one.name) for one in fields(known) if one.name not in more}, **more)


def seen(found: Any, sight: Sight) -> Any:
    """Returns a view, or a list of them, as somebody may see it: fields that are not open to them are None."""
    if sight.whole or isinstance(found, Task | Record):
        return found
    if isinstance(found, list | tuple):
        return type(found)(seen(one, sight) for one in found)
    if not is_dataclass(found) or isinstance(found, type):
        return found
    shown = shown_fields(type(found))
    return replace(
        found,
        **{
            one.name: seen(getattr(found, one.name), sight) if isinstance(shown[one.name][1], Open) else None
            for one in fields(found)
        },
    )


def document(found: Any, sight: Sight) -> Any:
    """Returns what somebody sees of a view, or of a list of them: fields that are not open to them are null."""
    if isinstance(found, Task):
        return views.task(found, sight)
    if isinstance(found, Record):
        return views.operation(found) if found.collection == OPERATIONS else document(views.approval(found), sight)
    if isinstance(found, list):
        return [document(one, sight) for one in found]
    if not is_dataclass(found) or isinstance(found, type):
        return found
    return View(
        {
            name: document(getattr(found, name), sight) if sight.whole or isinstance(shown, Open) else None
            for name, (_, shown) in shown_fields(type(found)).items()
        }
    )


def columns(view: type) -> list[tuple[str, Callable[[Any, datetime], object]]]:
    """Returns the table of a view: headings, and what stands below them."""

    def plain(name: str) -> Callable[[Any, datetime], object]:
        return lambda found, _: getattr(found, name)

    return [
        (shown.column, shown.cell or plain(name)) for name, (_, shown) in shown_fields(view).items() if shown.column
    ]
