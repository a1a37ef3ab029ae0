"""Fixtures of all tests of learned policies."""

from collections.abc import Iterator

import pytest

from testbed.networks import encoders


@pytest.fixture(autouse=True)
def small_encoders() -> Iterator[None]:
    """Checkpoints may name the encoders of :mod:`testbed.networks`."""
    with encoders.known():
        yield
