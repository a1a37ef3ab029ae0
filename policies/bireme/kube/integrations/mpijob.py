"""MPIJob of the MPI operator: worker pods, and a launcher that is a Job."""

from typing import Final

from bireme.kube import wire
from bireme.kube.integrations.integration import Integration, owner_name


def _creation_remedy(pod: wire.V1Pod) -> str:
    name = owner_name(pod, "MPIJob")
    return name and (
        f"MPIJob {name} creates its launcher only once its workers are ready, if it has"
        " launcherCreationPolicy: WaitForWorkersReady; give it AtStartup"
    )


MPI_JOB: Final = Integration(
    api_version="kubeflow.org/v2beta1",
    kind="MPIJob",
    plural="mpijobs",
    controls=("Pod", "Job"),
    creation_remedy=_creation_remedy,
)
