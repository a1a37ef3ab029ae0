"""The spec of a SchedulingPolicy under which a candidate decides as it was judged.

An omitted part is that of the checkpoint, else that of the settings, whichever policy decided
before.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from bireme.contender import Contender
from bireme.core.policy import PARTS, PartName
from bireme.core.settings import SchedulingSettings
from bireme.policy_names import checkpoint_folder, class_path
from bireme.registry import CHECKPOINT
from bireme_lab.tuning.past import Past


def policy_spec(
    best: Contender, past: Past, fitted: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the spec for ``best``, without its stage.

    ``fitted`` is the reference, name and sha256, to the checkpoint that the tuning made as the
    orderer of ``best``; the other parts of ``best`` need no checkpoint then.
    """
    own_parts = [part for part in PARTS if _is_own(part, best, past.settings)]
    checkpoint = fitted
    if checkpoint is None and own_parts:
        by = past.decided_by
        checkpoint = {"name": by.checkpoint} | ({"sha256": by.sha256} if by.sha256 else {})
    named: dict[str, Any] = {"checkpoint": dict(checkpoint)} if checkpoint else {}
    parameters: dict[str, dict[str, float]] = {}
    for part in PARTS:
        part_name = served_name(part, best)
        name, _, query = part_name.partition("?")
        if part not in own_parts:
            # Only the settings may name a folder or a user's own class.
            if not name or (":" in name and part_name == getattr(past.settings, part)):
                continue
            named[part] = name
        if query:
            parameters[part] = {key: float(value) for key, value in parse_qsl(query)}
    return {**named, "parameters": parameters} if parameters else named


def needs_checkpoint_beside(base: Contender, settings: SchedulingSettings) -> bool:
    """Return whether the placer or sizer of ``base`` needs the only checkpoint of a spec."""
    return any(_is_own(part, base, settings) for part in PARTS if part != "orderer")


def served_name(part: PartName, candidate: Contender) -> str:
    """Return the name of a part that any program can load: a shipped checkpoint by its own name."""
    full_name: str = getattr(candidate, part)
    name, mark, query = full_name.partition("?")
    folder = Path(name.removeprefix(CHECKPOINT))
    is_shipped = name.startswith(CHECKPOINT) and folder == checkpoint_folder(folder.name)
    return (
        f"{folder.name}{mark}{query}" if is_shipped and class_path(part, folder.name) else full_name
    )


def _is_own(part: PartName, candidate: Contender, settings: SchedulingSettings) -> bool:
    """Return whether ``part`` is from a checkpoint that neither a name nor the settings give."""
    name = served_name(part, candidate)
    return name.startswith(CHECKPOINT) and name != getattr(settings, part)
