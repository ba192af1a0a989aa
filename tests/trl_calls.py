"""TRL 1.16 called on given tensors. Its trainers hold the maths in methods: a stand-in takes the trainer's place."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import torch
from torch import Tensor


class Accelerator:
    """One process."""

    num_processes, process_index, sync_gradients, device = 1, 0, True, torch.device("cpu")

    def gather(self, tensor):
        return tensor

    gather_for_metrics = gather

    def reduce(self, tensor, reduction):
        return tensor


def stand_in(**more):
    """What a trainer's method reads of its trainer."""
    return SimpleNamespace(
        accelerator=Accelerator(),
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False,
        current_gradient_accumulation_steps=1,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
        **more,
    )


def value_and_gradient(loss: Tensor, leaf: Tensor) -> tuple[Tensor, Tensor]:
    """A loss, and its gradient by a leaf."""
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


def same(got, wanted, tolerance=1e-6):
    """Tensors, or tuples of them, agree to an absolute tolerance."""
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=0)
