"""What the README shows is what is so: its example runs, its commands are the ones that CI runs, its laws are those of the spec."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streaming import StreamingDataLoader

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_example_runs(tmp_path: Path) -> None:
    example, loop = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    compile(loop, "README.md", "exec")
    for name in re.findall(r"loader\.(\w+)\(", loop):
        assert callable(getattr(StreamingDataLoader, name))
    assert len(example.strip().splitlines()) <= 20
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    (tmp_path / "train.py").write_text(example)
    command = [sys.executable, "train.py"]
    for _ in range(2):
        shown = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        own_words = [line for line in shown.stderr.splitlines() if " WARN  lance::" not in line]
        assert (shown.returncode, own_words) == (0, [])
    (expected,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    assert shown.stdout == expected


def test_there_are_two_commands_of_one_line() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert commands[0].endswith("-m streaming demo")
    assert commands[1].endswith("-m pytest -n auto")
    assert all("-c .ci/constraints.txt" in line for line in commands)


@pytest.mark.parametrize("law", re.findall(r"\*\*(LAW-\d+)", (ROOT / "spec" / "laws.md").read_text()))
def test_every_law_is_promised_with_its_evidence(law: str) -> None:
    (line,) = [line for line in README.splitlines() if f"({law})" in line]
    assert re.search(r"exhaustive|sampled|proved", line)
