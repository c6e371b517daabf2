"""Access tokens of the HTTP API: list, create, revoke."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from redrive.errors import InvalidInput
from redrive.kernel.records import Record
from redrive.ops import access
from redrive.ops.access import Role
from redrive.ops.operator.declared import Closed, Given, Reason, action, look, view_of
from redrive.ops.operator.session import Service
from redrive.settings.connections import DEFAULT_CONNECTION

NO_TOKENS = "there are no tokens: the API serves this machine only, and lets everybody in"
Id = Annotated[str, Given("As the list gives it.", metavar="ID")]
Name = Annotated[str, Given("Who acts, in the audit log.", metavar="NAME", positional=True)]
RoleName = Annotated[str, Given("viewer, operator or admin.", metavar="ROLE")]
Days = Annotated[float | None, Given("Valid for so long; else for good.", metavar="N")]


def _expiry(one: TokenView, _: datetime) -> str:
    return "never" if one.expires_at is None else f"{one.expires_at:%Y-%m-%d %H:%M:%S}Z"


@dataclass(slots=True, frozen=True)
class TokenView:
    """A token, without its secret."""

    id: Annotated[str, Closed(column="id")]
    name: Annotated[str, Closed(column="name")]
    role: Annotated[str, Closed(column="role")]
    state: Annotated[str, Closed("active or revoked.", column="state")]
    created_at: Annotated[datetime, Closed(column="made")]
    created_by: Annotated[str, Closed(column="by")]
    valid_days: Annotated[float | None, Closed()]
    expires_at: Annotated[
        datetime | None, Closed("Null: it is valid until it is revoked.", column="expires", cell=_expiry)
    ]


@dataclass(slots=True, frozen=True)
class NewTokenView(TokenView):
    token: Annotated[str, Closed("The secret, shown only now: send it as Authorization: Bearer …")]

    @property
    def secret(self) -> str:
        return self.token


class TokenService(Service):
    """Access tokens of the HTTP API: list, create, revoke."""

    @look("GET /api/tokens", role=Role.ADMIN, empty=NO_TOKENS)
    async def list(self) -> builtins.list[TokenView]:
        """Tokens, without their secrets."""
        self._check_connection()
        return [_view(record) for record in await access.list_tokens(self._store)]

    async def any(self) -> bool:
        """Returns whether there ever was one."""
        return await access.any_token(self._store)

    @action("POST /api/tokens", role=Role.ADMIN, said="{name} ({done.role})", status=201, creates=True)
    async def create(self, name: Name, role: RoleName = "operator", days: Days = None) -> NewTokenView:
        """Make a token. Its secret is shown once."""
        self._check_connection()
        made = await access.create(self._store, name, access.parse_role(role), actor=self._who, days=days)
        return view_of(NewTokenView, _view(made.record), token=made.secret)

    @action("POST /api/tokens/{token}/revoke", role=Role.ADMIN, said="token {done.id} of {done.name} is revoked")
    async def revoke(self, token: Id, reason: Reason = None) -> TokenView:
        """Make a token worthless, at once and for good."""
        self._check_connection()
        return _view(await access.revoke(self._store, token, actor=self._who, reason=reason))

    def _check_connection(self) -> None:
        """Refuses other connections: a token that is kept there would let nobody in."""
        settings = self._session.policy.settings
        if self._session.connection != (DEFAULT_CONNECTION if settings is None else settings.default_connection):
            raise InvalidInput("access tokens are kept on the default connection", hint="leave the connection out")


def _view(record: Record) -> TokenView:
    body = {name: record.body.get(name) for name in ("name", "role", "created_by", "valid_days")}
    return view_of(TokenView, record, expires_at=access.expires_at(record), **body)
