"""The promises of the system, checked on everything the API server ever said in a block."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.history.check import check
from tests.support.history.recorder import Recorder
from tools.controlplane.cluster import Cluster


@contextmanager
def kept_promises(
    cluster: Cluster,
    folder: Path,
    *,
    grace_seconds: float = 20.0,
    except_for: Collection[str] = ("job-lost",),
) -> Iterator[Recorder]:
    """Records every revision within the block and judges the whole history at its end.

    By default jobs may vanish: tests delete what they made.

    Raises:
        AssertionError: lists every broken invariant that is not in ``except_for``.
    """
    with Recorder(cluster.kubeconfig, folder / "tests.support.history.jsonl") as recorder:
        yield recorder
        recorder.settle()
    found = check(recorder.records(), grace_seconds=grace_seconds)
    broken = [str(one) for one in found if one.invariant not in except_for]
    if broken:
        raise AssertionError("\n".join(broken))
