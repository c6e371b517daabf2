"""``/api/webhooks``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from redrive.feature.api import PROBLEMS, In, Out, TheOperator
from redrive.webhooks.deliveries import Deliveries
from redrive.webhooks.events import DEFAULT_ACCOUNT
from redrive.webhooks.service import Endpoints

router = APIRouter(prefix="/api/webhooks", tags=["webhooks"], responses=PROBLEMS)
Limit = Annotated[int, Query(ge=1, le=500)]


class EndpointIn(In):
    url: str
    account: str = DEFAULT_ACCOUNT
    events: list[str] = Field(default_factory=list)
    description: str | None = None
    secret: str | None = None
    shared: bool = False


class EndpointEdit(In):
    url: str | None = None
    events: list[str] | None = None
    description: str | None = None


class RotateIn(In):
    secret: str | None = None
    overlap_hours: float | None = None


class ReasonIn(In):
    reason: str | None = None


class SendIn(In):
    type: str
    data: Any = None
    account: str = DEFAULT_ACCOUNT
    event_id: str | None = None
    url: str | None = None
    secret: str | None = None


class SecretOut(Out):
    id: str
    created_at: datetime
    expires_at: datetime | None


class EndpointOut(Out):
    id: str
    account: str
    url: str
    events: list[str]
    description: str | None
    state: str
    direct: bool
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_by: str | None
    disabled_reason: str | None
    created_at: datetime


class EndpointDetail(EndpointOut):
    signed_by: str | None
    secrets: list[SecretOut]


class EndpointAdded(EndpointDetail):
    secret: str | None = Field(description="Shown this once.")


class EndpointPage(Out):
    items: list[EndpointOut]
    next: str | None


class EncryptedSecrets(Out):
    secrets: int = Field(description="All that the store has.")
    encrypted: int = Field(description="Those that were not, or by an older key.")


class Rotated(Out):
    account: str
    endpoint: str | None = None
    secret: str = Field(description="Shown this once.")
    overlap_hours: float


class AttemptOut(Out):
    attempt: int
    replay: int
    at: datetime
    outcome: str
    status: int | None
    ms: float
    request: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    error: str | None = None


class DeliveryOut(Out):
    id: str
    endpoint: str
    account: str
    event: str
    type: str
    round: int
    state: str
    task: str | None = Field(description="The state of its task, while that is kept.")
    attempt_count: int | None
    max_attempts: int | None
    next_attempt_at: datetime | None
    error_code: str | None
    created_at: datetime
    moved_at: datetime


class DeliveryDetail(DeliveryOut):
    attempts: list[AttemptOut]
    body: str | None


class DeliveryPage(Out):
    items: list[DeliveryOut]
    next: str | None


class SentTo(Out):
    delivery: str
    endpoint: str
    new: bool


class Sent(Out):
    event: str
    type: str
    account: str
    deliveries: list[SentTo]


@router.get("/endpoints", response_model=EndpointPage)
async def list_endpoints(
    operator: TheOperator,
    account: str | None = None,
    state: str | None = None,
    direct: bool = False,
    limit: Limit = 100,
    after: str | None = None,
) -> dict[str, Any]:
    """Endpoints, by account; `next` goes into `after`."""
    return await operator.of(Endpoints).list(account, state, direct=direct, limit=limit, after=after)


@router.post("/endpoints", status_code=201, response_model=EndpointAdded)
async def add_endpoint(body: EndpointIn, operator: TheOperator) -> dict[str, Any]:
    """Add an endpoint. Its secret is in this answer, and never shown again."""
    return await operator.of(Endpoints).add(
        body.account, body.url, body.events, body.description, secret=body.secret, shared=body.shared
    )


@router.get("/endpoints/{endpoint}", response_model=EndpointDetail)
async def show_endpoint(endpoint: str, operator: TheOperator) -> dict[str, Any]:
    """One endpoint; of its secrets only since when and until when they are valid."""
    return await operator.of(Endpoints).show(endpoint)


@router.patch("/endpoints/{endpoint}", response_model=EndpointDetail)
async def edit_endpoint(endpoint: str, body: EndpointEdit, operator: TheOperator) -> dict[str, Any]:
    """Change what is given."""
    return await operator.of(Endpoints).edit(endpoint, url=body.url, events=body.events, description=body.description)


@router.delete("/endpoints/{endpoint}", status_code=204)
async def remove_endpoint(endpoint: str, operator: TheOperator, reason: str | None = None) -> None:
    """Remove an endpoint and its secrets."""
    await operator.of(Endpoints).remove(endpoint, reason)


@router.post("/endpoints/{endpoint}/rotate", response_model=Rotated)
async def rotate_secret(endpoint: str, body: RotateIn, operator: TheOperator) -> dict[str, Any]:
    """Give an endpoint a new secret; the old one stays valid for a while."""
    return await operator.of(Endpoints).rotate(endpoint, secret=body.secret, overlap_hours=body.overlap_hours)


@router.post("/accounts/{account}/rotate", response_model=Rotated)
async def rotate_account(account: str, body: RotateIn, operator: TheOperator) -> dict[str, Any]:
    """Give an account a new secret, for its endpoints that have none of their own."""
    return await operator.of(Endpoints).rotate_account(account, secret=body.secret, overlap_hours=body.overlap_hours)


@router.post("/secrets/encrypt")
async def encrypt_secrets(operator: TheOperator) -> EncryptedSecrets:
    """Encrypt the secrets of the store by the newest of ``WEBHOOKS_SECRET_KEYS``, also those from before."""
    return EncryptedSecrets.model_validate(await operator.of(Endpoints).encrypt())


@router.post("/endpoints/{endpoint}/enable", response_model=EndpointDetail)
async def enable_endpoint(endpoint: str, body: ReasonIn, operator: TheOperator) -> dict[str, Any]:
    """Send it events again, from now on."""
    return await operator.of(Endpoints).enable(endpoint, body.reason)


@router.post("/endpoints/{endpoint}/disable", response_model=EndpointDetail)
async def disable_endpoint(endpoint: str, body: ReasonIn, operator: TheOperator) -> dict[str, Any]:
    """Send it nothing any more."""
    return await operator.of(Endpoints).disable(endpoint, body.reason)


@router.post("/endpoints/{endpoint}/ping", status_code=202, response_model=DeliveryDetail)
async def ping_endpoint(endpoint: str, operator: TheOperator) -> dict[str, Any]:
    """Send it an event that means nothing, once."""
    return await operator.of(Deliveries).ping(endpoint)


@router.get("/deliveries", response_model=DeliveryPage)
async def list_deliveries(
    operator: TheOperator,
    endpoint: str | None = None,
    account: str | None = None,
    state: str | None = None,
    type: str | None = None,
    event: str | None = None,
    limit: Limit = 50,
    before: str | None = None,
) -> dict[str, Any]:
    """Deliveries, the newest first; `next` goes into `before`."""
    return await operator.of(Deliveries).list(
        endpoint, account=account, state=state, event_type=type, event=event, limit=limit, before=before
    )


@router.get("/deliveries/{delivery}", response_model=DeliveryDetail)
async def show_delivery(delivery: str, operator: TheOperator) -> dict[str, Any]:
    """One delivery, with each request and answer."""
    return await operator.of(Deliveries).show(delivery)


@router.post("/deliveries/{delivery}/redeliver", status_code=202, response_model=DeliveryDetail)
async def redeliver(delivery: str, body: ReasonIn, operator: TheOperator) -> dict[str, Any]:
    """Send it once more, with the same id."""
    return await operator.of(Deliveries).redeliver(delivery, body.reason)


@router.post("/events", status_code=202, response_model=Sent)
async def send_event(body: SendIn, operator: TheOperator) -> dict[str, Any]:
    """Send an event to the endpoints of an account that want it, or to one URL."""
    return await operator.of(Deliveries).send(
        body.type, body.data, body.account, event_id=body.event_id, url=body.url, secret=body.secret
    )
