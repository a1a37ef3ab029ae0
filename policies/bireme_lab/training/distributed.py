"""Several processes that train one policy: each has its own envs, all share the gradients.

``torchrun`` starts the processes and sets environment variables (:func:`start_from_environment`).
Weights are equal at the start (:func:`equal_start`), and every gradient is averaged over the
processes (:func:`average_gradients`). So weights stay equal, and n processes learn like one with n
times as many envs. The processes must agree on everything that decides the number of gradients,
such as a stop or the size of a batch (:func:`average`, :func:`least`). Otherwise they would wait
for each other for ever. In a single process all functions do nothing.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import numpy as np
import torch
from torch import Tensor, distributed

PATIENCE: Final = timedelta(minutes=10)
"""The maximum wait for another process; validation may take minutes."""


def rank() -> int:
    """Return the number of this process; process 0 writes the files."""
    return distributed.get_rank() if _is_started() else 0


def world_size() -> int:
    """Return the number of processes that train together."""
    return distributed.get_world_size() if _is_started() else 1


@contextmanager
def start_from_environment() -> Iterator[None]:
    """Join the processes that torchrun started, if any; leave them at the end."""
    torch.set_num_threads(1)  # small networks are slower with more, even in a single process
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    distributed.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def process_seed(seed: int) -> int:
    """Return ``seed`` in the first process, and a different number in every other one."""
    state = np.random.SeedSequence(seed, spawn_key=(rank(),)).generate_state(1)
    return int(state[0]) if rank() else seed


def equal_start(tensors: Iterable[Tensor]) -> None:
    """Copy the values of ``tensors`` (weights and buffers) from the first process."""
    if world_size() == 1:
        return
    for tensor in tensors:
        distributed.broadcast(tensor.detach(), src=0)


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace the gradient of each of ``parameters`` by its mean over all processes.

    Call it between backward and step, equally often in every process. A missing gradient counts as
    zeros.
    """
    if world_size() == 1:
        return
    # One message for all gradients: many small messages would take longer than the gradients.
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in learned]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    distributed.all_reduce(flat)
    flat /= world_size()
    parts = torch.split(flat, [grad.numel() for grad in grads])
    for parameter, part in zip(learned, parts, strict=True):
        parameter.grad = part.view_as(parameter)


def average(value: float) -> float:
    """Return the mean of ``value`` over all processes."""
    return _reduce(value, distributed.ReduceOp.SUM) / world_size()


def least(value: float) -> float:
    """Return the smallest ``value`` of all processes."""
    return _reduce(value, distributed.ReduceOp.MIN)


def _reduce(value: float, how: distributed.ReduceOp.RedOpType) -> float:
    if world_size() == 1:
        return value
    tensor = torch.tensor([value], dtype=torch.float64)
    distributed.all_reduce(tensor, how)
    return float(tensor)


def _is_started() -> bool:
    return distributed.is_available() and distributed.is_initialized()
