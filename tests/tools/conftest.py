"""A file with a state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.support import state


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(state()))
    return path
