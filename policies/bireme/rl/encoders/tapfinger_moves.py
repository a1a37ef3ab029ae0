"""What a network of TapFinger is asked, and what its answer means: a task and a size per pool.

``seen`` is one moment of all pools: the inputs of
:class:`~bireme.rl.encoders.tapfinger_scene.Scene`, with ``kind`` and ``job`` int64 (pools, slots),
``room`` (pools, slots) and ``can_void``, whether all pools may start nothing. The answer holds for
every slot of every pool the score of the pointer, then those of no size and of each size.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.resources import FloatArray, IntArray
from bireme.rl.encoders.tapfinger_choice import winners
from bireme.rl.encoders.tapfinger_scene import (
    NONE,
    PENDING_FEATURES,
    POOL_FEATURES,
    RUNNING_FEATURES,
    SIZE_FEATURES,
)

VOID: Final = 0
"""A size: nothing."""
LOST: Final = -1
"""In place of a size: another pool has the task, or nothing could start."""
INPUTS: Final[Mapping[str, tuple[int | str, ...]]] = {
    "pending": ("pools", "slots", PENDING_FEATURES),
    "running": ("pools", "runs", RUNNING_FEATURES),
    "pools": ("pools", POOL_FEATURES),
    "sizes": ("pools", "slots", "sizes", SIZE_FEATURES),
}

Seen = Mapping[str, NDArray[Any]]


def question(seen: Seen) -> tuple[dict[str, NDArray[np.float32]], int]:
    """Arrays of the shapes of INPUTS, and how many numbers the answer has."""
    kind = np.maximum(seen["kind"], 0)
    sizes = np.take_along_axis(seen["sizes"], kind[:, :, None, None], axis=1)
    arrays = {**{name: seen[name] for name in INPUTS if name != "sizes"}, "sizes": sizes}
    return arrays, kind.size * (2 + sizes.shape[2])


def decided(
    seen: Seen, sizes: NDArray[np.float32], logits: FloatArray
) -> tuple[IntArray, IntArray]:
    """Slot and size of every pool, (pools,) each: the likeliest, conflicts resolved.

    Sizes are counted from 1. ``sizes`` is the array of :func:`question`.
    """
    kind, pools = seen["kind"], np.arange(len(seen["kind"]))
    scores = logits.reshape(*kind.shape, -1)
    fits = sizes[..., 0] > 0
    can_start = fits[..., 0] & (kind != NONE)
    is_busy = can_start.any(-1)
    wanted = np.where(can_start | ~is_busy[:, None], scores[..., 0], -np.inf)
    slot = wanted.argmax(-1)
    shares = np.exp(wanted - wanted.max(-1, keepdims=True))
    chance = (shares / shares.sum(-1, keepdims=True))[pools, slot]
    job = np.where(is_busy, seen["job"][pools, slot], NONE)
    won = winners(job[None], chance[None], seen["room"][pools, slot][None])[0]
    may_void = np.full((len(kind), 1), seen["can_void"])
    allowed = np.concatenate([may_void, fits[pools, slot]], axis=-1)
    size = np.where(allowed, scores[pools, slot, 1:], -np.inf).argmax(-1)
    return slot, np.where(won, size, LOST)
