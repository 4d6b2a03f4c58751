"""Elastic, resumable streaming datasets for PyTorch on LanceDB tables. The contract is written down in spec/."""

from streaming.checkpoint import merge_state_dicts
from streaming.dataset import StreamingDataset
from streaming.errors import StreamingError
from streaming.loader import StreamingDataLoader
from streaming.schedule import Due, Schedule

__all__ = ["Due", "Schedule", "StreamingDataLoader", "StreamingDataset", "StreamingError", "merge_state_dicts"]
