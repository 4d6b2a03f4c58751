"""Hypothesis profiles: dev (default), ci (derandomised, the gate), nightly (random, large). Choose with HYPOTHESIS_PROFILE."""

import os

from hypothesis import HealthCheck, settings

_calm = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=100, **_calm)
settings.register_profile("ci", max_examples=150, derandomize=True, **_calm)
settings.register_profile("nightly", max_examples=5000, stateful_step_count=100, print_blob=True, **_calm)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
