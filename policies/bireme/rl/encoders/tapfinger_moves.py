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

from bireme.core.resources import BoolArray, FloatArray, IntArray
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
    seen: Seen, sizes: NDArray[np.float32], logits: FloatArray, *, turns: int = 1
) -> tuple[IntArray, IntArray]:
    """Slot and size of every pool, (pools,) each: the likeliest, conflicts resolved.

    Sizes are counted from 1. ``sizes`` is the array of :func:`question`. With more ``turns`` pools
    that lost choose again so often from what nobody has taken yet, by the same answer; training
    asks anew instead.
    """
    kind, pools = seen["kind"], np.arange(len(seen["kind"]))
    scores = logits.reshape(*kind.shape, -1)
    fits = sizes[..., 0] > 0
    may_void = np.full((*kind.shape, 1), seen["can_void"])
    allowed = np.concatenate([may_void, fits], axis=-1)
    best = np.where(allowed, scores[..., 1:], -np.inf).argmax(-1)
    is_open = fits[..., 0] & (kind != NONE)
    slot, size = np.zeros(len(pools), np.int64), np.full(len(pools), LOST)
    for _ in range(turns):
        chosen, won = _won(seen, scores[..., 0], is_open, best)
        slot[won], size[won] = chosen[won], best[pools, chosen][won]
        taken = seen["job"][pools, chosen][won & (size > VOID)]
        is_open = is_open & ~won[:, None] & ~np.isin(seen["job"], taken)
        if not is_open.any():
            break
    return slot, size


def _won(
    seen: Seen, scores: FloatArray, is_open: BoolArray, best: IntArray
) -> tuple[IntArray, BoolArray]:
    """Which slot each pool chooses of the open ones, and whether nobody is in its way, (pools,).

    A pool that would give a task nothing (``best``) does not contend for it.
    """
    pools, is_busy = np.arange(len(scores)), np.asarray(is_open.any(-1))
    wanted = np.where(is_open | ~is_busy[:, None], scores, -np.inf)
    slot = wanted.argmax(-1)
    shares = np.exp(wanted - wanted.max(-1, keepdims=True))
    chance = (shares / shares.sum(-1, keepdims=True))[pools, slot]
    voids = best[pools, slot] == VOID
    job = np.where(is_busy & ~voids, seen["job"][pools, slot], NONE)
    room = seen["room"][pools, slot]
    return slot, winners(job[None], chance[None], room[None])[0] | (is_busy & voids)
