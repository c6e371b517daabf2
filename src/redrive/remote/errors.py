"""What goes wrong between us and a provider."""

from __future__ import annotations

from redrive.errors import InvalidInput
from redrive.kernel.classify import CODES, UNKNOWN, Classification, FailureType, by_status

# What came is not what was agreed upon. Nobody knows what it means for the job, so that nothing is given up for it.
NONSENSE = Classification("provider_answer", FailureType.MODEL_ERROR, True)
UNFIT_ITEM = Classification("provider_item", FailureType.PARAM_ERROR, False)


class ProviderUnknown(InvalidInput):
    """The application has no provider of this name."""

    code = "PROVIDER_UNKNOWN"


class ProviderError(Exception):
    """A call of a provider that did not succeed. ``transient``: the same call may succeed later.

    No ``RedriveError``: it is what somebody else answered, and ``status_code`` is theirs.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        status_code: int | None = None,
        code: str | None = None,
        retry_after: str | None = None,
        classification: Classification | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.provider = provider
        self.status_code = status_code
        self.code = code
        # As a response has it: whoever classifies an exception looks for it there.
        self.headers = {} if retry_after is None else {"Retry-After": retry_after}
        # What a provider calls it comes first: some answer 400 to what should be tried again.
        known = CODES.get(code or "") or (UNKNOWN if status_code is None else by_status(status_code))
        self.classification = classification or known

    @property
    def transient(self) -> bool:
        return bool(self.classification.retryable)

    @property
    def reason(self) -> str:
        return self.classification.reason

    @property
    def failure_type(self) -> FailureType:
        return self.classification.type
