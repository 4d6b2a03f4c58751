"""What the README shows is what is so: its example runs, its commands are the ones that CI runs, its laws are those of the spec."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from streaming import StreamingDataLoader, StreamingDataset
from streaming.batches import make_batch
from streaming.errors import BatchError

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_example_runs(tmp_path: Path) -> None:
    example, loop, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
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


def test_the_transform_runs() -> None:
    """Its `pad`, as a columnar transform in threads."""
    *_, source = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)
    tokens = [list(range(i)) for i in (0, 3, 200, 5)]
    table = pa.table({"tokens": pa.array(tokens, pa.list_(pa.int32())), "label": range(4)})
    dataset = StreamingDataset(
        lancedb.connect("memory://").create_table("readme", table), shuffle=False, columnar_transform=names["pad"], transform_parallelism=4
    )
    (batch,) = StreamingDataLoader(dataset, batch_size=4)
    assert batch["tokens"].shape == (4, names["LENGTH"])
    assert batch["tokens"].sum(dim=1).tolist() == [sum(row[: names["LENGTH"]]) for row in tokens]
    assert batch["label"].tolist() == list(range(4))


COLUMNS = {
    "numbers, booleans": [pa.array([1, 2], pa.int16()), pa.array([1.5, 2], pa.float32()), pa.array([True, False])],
    "lists of k numbers": [pa.array([[1, 2], [3, 4]]), pa.array([[1.5, 2], [3, 4]], pa.list_(pa.float32(), 2))],
    "lists of different lengths": [pa.array([[1], [2, 3]])],
    "strings, binaries, blobs": [pa.array(["a", "b"]), pa.array([b"a", b"bc"])],
    "struct": [pa.array([{"a": 1}, {"a": 2}])],
    "tensors of fixed shape": [
        pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int8(), [1, 2]), pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)))
    ],
    "dates, timestamps, durations": [pa.array([1, 2], kind) for kind in (pa.date32(), pa.timestamp("us", "UTC"), pa.duration("s"))],
    "decimals and others": [pa.array([1, 2], pa.decimal128(5, 2)), pa.array([1, 2], pa.time32("s"))],
    "null": [pa.array([None, 1]), pa.array([1.5, None])],
}


def test_the_table_of_formats_is_true() -> None:
    """Each cell that says refused is, each other one is not, for the columns above."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in README.splitlines() if line.startswith("|")]
    described = {row[0]: row[1:] for row in rows if row[0] in COLUMNS}
    assert list(described) == list(COLUMNS)
    for kind, cells in described.items():
        for cell, layout in zip(cells, ("python", "torch", "numpy"), strict=True):
            for column in COLUMNS[kind]:
                batch = pa.record_batch({"x": column})
                if cell.startswith("refused"):
                    with pytest.raises(BatchError, match="'x'"):
                        make_batch(batch, layout)
                else:
                    assert len(make_batch(batch, layout)["x"]) >= 1


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
