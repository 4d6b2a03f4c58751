"""The model: a small byte-level language model, in float64 so that sums in another order differ by rounding only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import nn

WINDOW_BYTES: Final = 128
_CONTEXT: Final = 8
_EMBEDDING: Final = 16
_HIDDEN: Final = 64


class ByteModel(nn.Module):
    """Predicts each byte from the eight before it (Bengio et al., 2003)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, _EMBEDDING, dtype=torch.float64)
        self.hidden = nn.Linear(_CONTEXT * _EMBEDDING, _HIDDEN, dtype=torch.float64)
        self.logits = nn.Linear(_HIDDEN, 256, dtype=torch.float64)

    def forward(self, texts: Sequence[bytes]) -> torch.Tensor:
        """Sum over the rows of their mean loss, in nats per byte: a sum, so that ranks can add theirs up."""
        tokens = torch.frombuffer(bytearray(b"".join(texts)), dtype=torch.uint8).view(len(texts), WINDOW_BYTES).long()
        contexts = self.embed(tokens[:, :-1]).unfold(1, _CONTEXT, 1).flatten(2)
        logits = self.logits(torch.tanh(self.hidden(contexts)))
        targets = tokens[:, _CONTEXT:]
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / targets.shape[1]
