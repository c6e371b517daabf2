"""The settings of the process that is asked: effective values and where each comes from."""

from __future__ import annotations

import builtins

from redrive.ops.access import Role
from redrive.ops.operator.session import Service
from redrive.settings import Effective, effective


class SettingService(Service):
    def list(self) -> builtins.list[Effective]:
        """Returns every setting by its name; secrets are not shown to anybody."""
        self._session.may(Role.OPERATOR)
        settings = self._session.policy.settings
        return [] if settings is None else effective(settings, self._session.features)
