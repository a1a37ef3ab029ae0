"""The two clusters: a real control plane and an embedded one, with equal nodes, chart and Bireme.

Bireme's programs act as the accounts that the chart gives them, on both.
"""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import yaml

from bireme_lab.embedded.fake_nodes import fake_nodes
from bireme_lab.embedded.installation import NAMESPACE, EmbeddedInstallation, chart
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.stack import SCHEDULER_CONFIG, BiremeStack
from testbed.parity.lockstep import Lockstep
from testbed.parity.played_cluster import PlayedCluster
from testbed.parity.scripts.script import DEFAULT_QUEUE
from testbed.scenario.clusters import PATIENT, gpu_cluster
from testbed.scenario.helm import account_kubeconfig
from testbed.scenario.manifests import Manifest, queue

_NODES: Final = 2
_GPUS: Final = 8
_NOT_JUDGED: Final = {"job-lost": "scripts delete jobs in every phase"}
_ACCOUNTS: Final = {
    "operator-a": "bireme-operator",
    "extender": "bireme-scheduler",
    "kube-scheduler": "bireme-scheduler",
}
"""By program, the account that it acts as."""
_TOKEN_HOURS: Final = 24


@asynccontextmanager
async def both_clusters() -> AsyncIterator[Lockstep]:
    """Start both clusters, with two nodes of eight GPUs and the queue ``default`` each."""
    async with real_cluster() as real, embedded_cluster() as embedded:
        yield Lockstep(real, embedded)


@asynccontextmanager
async def real_cluster() -> AsyncIterator[PlayedCluster]:
    """Start a real control plane with the chart, and Bireme's programs on it."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parity-")))
        cluster = stack.enter_context(_real_installation(folder))
        yield await stack.enter_async_context(PlayedCluster.open("real", cluster.kubeconfig))


@asynccontextmanager
async def embedded_cluster() -> AsyncIterator[PlayedCluster]:
    """Start an embedded cluster as ``bireme try`` does."""
    nodes = fake_nodes(_NODES, _GPUS, racks=_NODES)
    async with (
        EmbeddedInstallation(nodes=nodes, manifests=[queue(DEFAULT_QUEUE)]) as installation,
        PlayedCluster.open("embedded", installation.kubeconfig) as embedded,
    ):
        yield embedded


@contextmanager
def _real_installation(folder: Path) -> Iterator[Cluster]:
    with gpu_cluster("parity", _NODES, _GPUS, not_judged=_NOT_JUDGED) as cluster:
        for manifest in chart():
            _create(cluster, manifest)
        credentials = {
            program: account_kubeconfig(
                cluster, NAMESPACE, account, folder / f"{program}.yaml", _TOKEN_HOURS
            )
            for program, account in _ACCOUNTS.items()
        }
        settings = {"BIREME_LEASE_NAMESPACE": NAMESPACE}
        scheduler = yaml.safe_load(SCHEDULER_CONFIG.read_text())
        scheduler["leaderElection"]["resourceNamespace"] = NAMESPACE
        with BiremeStack(
            cluster, folder / "real", settings, credentials, scheduler, PATIENT
        ) as programs:
            programs.start()
            yield cluster


def _create(cluster: Cluster, manifest: Manifest) -> None:
    """Create an object of the chart, unless it is there."""
    done = cluster.kubectl("create", "-f", "-", input=yaml.safe_dump(manifest), check=False)
    if "AlreadyExists" not in done and " created" not in done:
        raise ControlPlaneError(f"the real cluster does not take the chart: {done}")
