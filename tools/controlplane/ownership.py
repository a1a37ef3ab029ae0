"""Which Python program a cluster belongs to, told by a file lock that the program holds.

The kernel drops the lock however the program ends, so an unlocked file marks an orphan: nothing to
time out, no pid that another program may have taken over.
"""

import fcntl
from pathlib import Path
from typing import IO, Final

OWNER_FILE: Final = "owner.lock"

# Kept here and not in the Cluster object, which a program may drop and find again by name.
_claims: Final[dict[Path, IO[str]]] = {}


def claim(folder: Path) -> None:
    """Marks ``folder`` as owned by this program until it ends or calls ``release``."""
    unlocked = folder / f"{OWNER_FILE}.new"
    owner = unlocked.open("w")
    fcntl.flock(owner, fcntl.LOCK_EX)
    unlocked.rename(folder / OWNER_FILE)  # never visible without its lock
    _claims[folder] = owner


def release(folder: Path) -> None:
    """Gives up the claim on ``folder``, if this program has one."""
    if owner := _claims.pop(folder, None):
        owner.close()


def is_orphan(folder: Path) -> bool:
    """Whether ``folder`` had an owner and it is gone; False for one that was never claimed."""
    try:
        with (folder / OWNER_FILE).open() as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    return True
