"""The application of workers that drive remote batches in the bench: one provider, as the environment says."""

from __future__ import annotations

import json
import os

from redrive import App
from redrive.settings import load_settings
from redrive.settings.providers import parse_providers

PROVIDERS = "BENCH_PROVIDERS"

app = App(settings=load_settings(providers=parse_providers(json.loads(os.environ.get(PROVIDERS, "{}")))))
