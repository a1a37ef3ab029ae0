"""Cheaper torch: one thread, as training has, and one list of what its exporter can translate."""

import functools
from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def translations_are_listed_once() -> Iterator[None]:
    """Torch parses 500 functions anew for every export, which is half of its time."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    registry = functools.cache(ONNXRegistry.from_torchlib)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(registry))
        yield
