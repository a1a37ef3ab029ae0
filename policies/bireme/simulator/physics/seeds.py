"""Chance that depends on names alone: one stream of random numbers per seed and thing.

A failure of one node, or the luck of one start, must not change because another node was added or
two events changed places. So nothing here shares a stream: each is made from what it is for.
"""

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The stream that belongs to ``names`` under ``seed``; equal arguments, equal numbers."""
    key = repr((seed, *names)).encode()
    digest = hashlib.blake2b(key, digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
