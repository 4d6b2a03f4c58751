"""One rank of the training job: ``python -m streaming.demo.rank JOB``, JOB being a `Job` as JSON.

Nothing here knows whether the run is the uninterrupted one, the one to be killed, or the resumed one.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TextIO

import lancedb
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from streaming import StreamingDataset, merge_state_dicts
from streaming.demo import checkpoints, logs
from streaming.demo.model import ByteModel

_LEARNING_RATE: Final = 3e-3
_PATIENCE: Final = timedelta(seconds=90)


@dataclass(frozen=True)
class Job:
    """What one rank has to do; every path is absolute.

    Attributes
    ----------
    uri, table : str
        Where the rows are.
    rank, world_size, num_splits, global_batch, seed : int
        As for `StreamingDataset`; `global_batch` rows of all ranks make a step.
    checkpoint_every : int
        Steps from one checkpoint to the next.
    checkpoints, log, store : str
        Directory of the checkpoints, this rank's log, and the file over which the ranks find each other.
    resume : str or None
        Checkpoint to continue from.
    """

    uri: str
    table: str
    rank: int
    world_size: int
    num_splits: int
    global_batch: int
    seed: int
    checkpoint_every: int
    checkpoints: str
    log: str
    store: str
    resume: str | None = None

    def to_json(self) -> str:
        """Return the job as an argument for the command line."""
        return json.dumps(asdict(self))


def train(job: Job, log: TextIO) -> None:
    """Train to the end of the epoch, from its beginning or from a checkpoint."""
    table = lancedb.connect(job.uri).open_table(job.table)
    dataset = StreamingDataset(table, num_splits=job.num_splits, shuffle_seed=job.seed, columns=["id", "text"])
    torch.manual_seed(job.seed)  # every rank draws the same first weights
    model = ByteModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
    step = 0
    if job.resume is not None:
        saved = checkpoints.load(Path(job.resume))
        step = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        dataset.load_state_dict(saved["dataset"])

    for batch in DataLoader(dataset, batch_size=job.global_batch // job.world_size, num_workers=0):
        texts: Sequence[bytes] = batch["text"]
        optimizer.zero_grad()
        loss = backward(model, texts)
        # Written before the weights change: no step has an effect that its log does not show.
        logs.append(log, logs.Record(step, batch["id"].tolist(), [zlib.crc32(text) for text in texts], loss))
        optimizer.step()
        step += 1
        if step % job.checkpoint_every == 0:
            save(job, step, model, optimizer, dataset)


def backward(model: ByteModel, texts: Sequence[bytes]) -> float:
    """Set the gradients of the mean loss over the rows of all ranks, however many each has, and return that loss."""
    loss = model(texts)
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    total = torch.cat([*(gradient.flatten() for gradient in gradients), torch.stack([loss.detach(), loss.new_tensor(len(texts))])])
    dist.all_reduce(total)
    rows = total[-1]
    begin = 0
    for gradient in gradients:
        gradient.copy_((total[begin : begin + gradient.numel()] / rows).view_as(gradient))
        begin += gradient.numel()
    return float(total[-2] / rows)


def save(job: Job, step: int, model: ByteModel, optimizer: torch.optim.Optimizer, dataset: StreamingDataset) -> None:
    """Save one checkpoint for all ranks: the model is the same on each, the datasets' states are merged."""
    states: list[dict[str, object]] = [{} for _ in range(job.world_size)]
    dist.all_gather_object(states, dataset.state_dict())
    if job.rank == 0:
        # Refuses ranks that stand at different steps.
        state = merge_state_dicts(states)
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "dataset": state}
        checkpoints.save(Path(job.checkpoints), step, content)


def main() -> None:
    """Run the job that the command line describes."""
    job = Job(**json.loads(sys.argv[1]))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    meeting = Path(job.store).as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=job.rank, world_size=job.world_size, timeout=_PATIENCE)
    with open(job.log, "a", encoding="ascii") as log:
        train(job, log)
    dist.barrier()
    dist.destroy_process_group()


def _end_with_parent() -> None:
    """End when the other end of standard input closes: a demo that was itself killed leaves no ranks behind."""
    os.read(sys.stdin.fileno(), 1)  # not through sys.stdin, whose lock Python wants back at its own end
    os._exit(3)


if __name__ == "__main__":
    try:
        main()
        code = 0
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not through the interpreter's own end: a thread of gloo may drop its last tensor only now, and one that asks a
    # finalizing interpreter for its lock aborts the process (seen once in some 200 runs on busy machines).
    os._exit(code)
