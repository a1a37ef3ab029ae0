"""Checkpoints by name: a folder of one's own first, then those that come with Bireme."""

from pathlib import Path

from bireme.rl import checkpoints, shipped
from bireme.rl.checkpoints import Checkpoint
from bireme.rl.errors import CheckpointError


def load(name: str, directory: str = "", sha256: str | None = None) -> Checkpoint:
    """The checkpoint called ``name``: ``directory/name`` if there is such a folder, else a shipped.

    Raises:
        CheckpointError: there is none of that name, it is not the one with ``sha256``, or it
            cannot be used.
    """
    return checkpoints.load(folder_of(name, directory), sha256)


def folder_of(name: str, directory: str = "") -> Path:
    """Where the checkpoint lies. Raises CheckpointError: nowhere."""
    own = _folders(Path(directory)) if directory else {}
    ours = _folders(shipped.FOLDER) if shipped.FOLDER.exists() else {}
    found = own.get(name) or ours.get(name)
    if found is None:
        where = f"below checkpoint_directory {directory!r}, " if directory else ""
        raise CheckpointError(
            f"no checkpoint is called {name!r} {where}and none of those that come with Bireme "
            f"({', '.join(sorted(ours)) or 'there are none'}); copy its folder below "
            "checkpoint_directory, or correct the name"
        )
    return found


def _folders(directory: Path) -> dict[str, Path]:
    """Folders below ``directory``: a name is looked up in them, never made into a path."""
    try:
        return {path.name: path for path in directory.iterdir() if path.is_dir()}
    except OSError as error:
        raise CheckpointError(
            f"checkpoint_directory {str(directory)!r} cannot be read: {error}; name a folder that "
            "this program may list"
        ) from error
