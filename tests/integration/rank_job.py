"""One of four real ranks over gloo: ``python -m tests.integration.rank_job RANK FOLDER`` (for tests/integration/test_ranks.py).

Worlds of 1, 2 and 4 ranks are groups of these processes. Each saves through torch.distributed.checkpoint, and each saved checkpoint is
loaded by each world. What reached the trainers is written down; the test judges.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import lancedb
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from streaming import StreamingDataLoader, StreamingDataset, StreamingError

WORLDS = (1, 2, 4)


def loader(folder: Path, rank: int, world_size: int, **arguments: Any) -> StreamingDataLoader:
    table = lancedb.connect(folder / "db").open_table("t")
    dataset = StreamingDataset(table, **{"num_splits": 4, "shuffle_seed": 1, "rank": rank, "world_size": world_size, **arguments})
    return StreamingDataLoader(dataset, batch_size=3)


def code_of(call: Any) -> Any:
    try:
        return call()
    except StreamingError as error:
        return [error.code, *getattr(error, "fields", ())]


def save(folder: Path, rank: int, world_size: int, group: Any) -> dict[str, Any]:
    """Three batches, a checkpoint; then rank 0 takes one batch more, and all save again."""
    batches = loader(folder, rank, world_size, epoch=5)
    fresh = sorted(batches.state_dict())
    batches.check_ranks(group)
    iterator = iter(batches)
    before = [row for _ in range(3) for row in next(iterator)["id"].tolist()]
    state = batches.state_dict()
    dcp.save({"data": batches}, checkpoint_id=folder / f"even-{world_size}", process_group=group)
    seen = {"before": before, "state": state, "fresh keys": fresh, "gathered": batches.gather_state_dict(group)}
    if rank == 0:
        next(iterator)
    seen["torn state"] = batches.state_dict()
    seen["torn"] = code_of(lambda: batches.gather_state_dict(group))
    seen["replayed"] = batches.gather_state_dict(group, skew="replay")
    seen["differ"] = code_of(lambda: batches.check_ranks(group))
    dcp.save({"data": batches}, checkpoint_id=folder / f"torn-{world_size}", process_group=group)
    other = loader(folder, rank, world_size, epoch=rank)
    seen["epochs"] = code_of(lambda: other.check_ranks(group))
    twins = loader(folder, 0, world_size)
    seen["twins"] = code_of(lambda: twins.gather_state_dict(group))
    return seen


def load(folder: Path, rank: int, world_size: int, group: Any, saved: int) -> dict[str, Any]:
    """Go on from what a world of `saved` ranks left."""
    batches = loader(folder, rank, world_size)
    dcp.load({"data": batches}, checkpoint_id=folder / f"even-{saved}", process_group=group)
    seen: dict[str, Any] = {"state": batches.state_dict()}
    batches.check_ranks(group)
    seen["after"] = [row for batch in batches for row in batch["id"].tolist()]
    before = batches.state_dict()
    try:
        dcp.load({"data": batches}, checkpoint_id=folder / f"torn-{saved}", process_group=group)
        seen["torn"] = batches.state_dict()
    except StreamingError as error:
        seen["torn"] = error.code
    seen["unchanged"] = batches.state_dict() == before
    return seen


def main(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=(folder / "store").as_uri(), rank=rank, world_size=max(WORLDS))
    groups = {size: dist.new_group(list(range(size))) for size in WORLDS}
    seen: dict[str, Any] = {}
    for size in WORLDS:
        if rank < size:
            seen[f"save {size}"] = save(folder, rank, size, groups[size])
        else:
            seen[f"outside {size}"] = code_of(lambda size=size: loader(folder, 0, 1).check_ranks(groups[size]))
    dist.barrier()
    for saved in WORLDS:
        for size in WORLDS:
            if rank < size:
                seen[f"load {saved} on {size}"] = load(folder, rank, size, groups[size], saved)
    (folder / f"rank-{rank}.json").write_text(json.dumps(seen))
    dist.barrier()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), Path(sys.argv[2]))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # a thread of gloo may still want the lock of the interpreter, which would abort at its own end
