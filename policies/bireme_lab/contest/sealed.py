"""The test part of every family, which training, tuning and the choice of a policy cannot open.

Only ``python -m bireme_lab.contest`` and the evaluation of finished checkpoints import this module;
an import contract keeps recipes from it.
"""

from pathlib import Path

from bireme_lab.contest import families
from bireme_lab.contest.worlds import World
from bireme_lab.simulator.workload import Trace


def test_worlds(data: Path, family: str, blocks: int) -> list[World]:
    """Return the worlds of the first ``blocks`` blocks of the test part of ``family``.

    Raises:
        SettingError: the family is unknown, or a file of it is missing.
    """
    return list(families.find(family).build(data, "test", blocks))


def whole_philly(data: Path) -> Trace:
    """Return all of Philly, with every virtual cluster; raises as :func:`test_worlds`."""
    return families._philly_until(data, "test")
