"""A policy by the names of its parts, as it is written on a command line.

It is written ``orderer/placer/sizer``, each a name of the registry, with its parameters if
it has any: ``tiresias-las?threshold_device_seconds=30000``. It may also be ``checkpoint:FOLDER``,
which stands for all parts of that checkpoint. Omitted parts are the defaults of
:class:`~bireme.core.settings.SchedulingSettings`.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bireme import registry
from bireme.core.errors import SettingError
from bireme.core.policy import PARTS, PartName, Policy
from bireme.core.settings import SchedulingSettings
from bireme.onnx.checkpoints import read_card
from bireme.rl.components import parts_of

_DEFAULTS: Final = SchedulingSettings()
_KNOWING: Final = ", run times known"


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy by the names of its parts.

    Attributes:
        knows_run_times: It gets true run times, which no operator has: the ceiling of a table.
    """

    orderer: str = _DEFAULTS.orderer
    placer: str = _DEFAULTS.placer
    sizer: str = _DEFAULTS.sizer
    knows_run_times: bool = False

    @classmethod
    def read(cls, text: str, general: SchedulingSettings = _DEFAULTS) -> "Contender":
        """Return the candidate written ``orderer/placer/sizer``; the inverse of :attr:`name`.

        Omitted parts are those of ``general``.

        Raises:
            SettingError: ``text`` has more than three parts, or an empty one.
            CheckpointError: the folder has no checkpoint.
        """
        named = text.removesuffix(_KNOWING)
        parts = _parts_of(named)
        if len(parts) > 3 or "" in parts:
            raise SettingError(
                f"{text!r} is no policy; write orderer, orderer/placer or orderer/placer/sizer"
            )
        whole = parts_at(named)
        by_part = dict.fromkeys(whole, named) or dict(zip(PARTS, parts, strict=False))
        complete = {part: by_part.get(part, getattr(general, part)) for part in PARTS}
        return cls(**complete, knows_run_times=named != text)

    @property
    def name(self) -> str:
        """``orderer/placer/sizer`` without trailing defaults, or the checkpoint."""
        parts = [self.orderer, self.placer, self.sizer]
        if not self.sizer:
            parts = parts[:1] if self.placer == _DEFAULTS.placer else parts[:2]
        parts = list(dict.fromkeys(parts)) if registry.CHECKPOINT in self.orderer else parts
        return "/".join(parts) + (_KNOWING if self.knows_run_times else "")

    def policy(self, settings: SchedulingSettings = _DEFAULTS) -> tuple[Policy, SchedulingSettings]:
        """Return the policy, made anew, and ``settings`` with its names.

        Raises:
            SettingError: a name or a parameter is unknown, or a value is out of range.
        """
        named = self.settings(settings)
        return registry.make_policy(named), named

    def settings(self, general: SchedulingSettings) -> SchedulingSettings:
        """Return ``general`` with the names of the parts."""
        return replace(general, orderer=self.orderer, placer=self.placer, sizer=self.sizer)


def _parts_of(text: str) -> list[str]:
    """Return the parts of ``text`` between slashes; a checkpoint's folder extends to the end."""
    head, has_checkpoint, folder = f"/{text}".partition(f"/{registry.CHECKPOINT}")
    parts = head.split("/")[1:]
    return [*parts, registry.CHECKPOINT + folder] if has_checkpoint else parts


def parts_at(text: str) -> Collection[PartName]:
    """Return the parts that ``checkpoint:FOLDER`` stands for; empty for any other ``text``.

    Raises CheckpointError: the folder has no checkpoint.
    """
    if not text.startswith(registry.CHECKPOINT):
        return ()
    card, _ = read_card(Path(text.removeprefix(registry.CHECKPOINT).partition("?")[0]))
    return parts_of(card)
