"""How the pods of a TrainingJob reach the progress endpoint, and prove whose they are.

Every container gets the endpoint's address and a ServiceAccount token that is good for nothing
else: the kubelet keeps it fresh, it names the pod, and its audience is the endpoint alone. The same
variables stand there under the names of Kubeflow Trainer (KEP-2779), so that what reports to that
reports here. A template annotated ``bireme.dev/progress: "none"`` gets none of it.
"""

from dataclasses import dataclass
from typing import Any, Final

from bireme.core.gangs import Key
from bireme.kube import names

AUDIENCE: Final = "progress.bireme.dev"
ANNOTATION: Final = f"{names.GROUP}/progress"
_TOKEN_SECONDS: Final = 3600
_VOLUME: Final = "bireme-progress"
_FOLDER: Final = "/var/run/secrets/bireme.dev/progress"
_CA_FILE: Final = "ca.crt"
_TOKEN_FILE: Final = "token"  # noqa: S105  # a file's name


def path(job: Key) -> str:
    """Where reports of ``job`` go, below the address of the endpoint."""
    return f"{names.path('trainingjobs', *job)}/progress"


@dataclass(frozen=True, slots=True)
class ProgressAccess:
    """What the pods are told.

    Attributes:
        url: Where the endpoint is for them, such as
            ``https://bireme-progress.bireme-system.svc:8082``.
        ca_config_map: The ConfigMap in the job's namespace whose ``ca.crt`` vouches for it; empty
            where the usual authorities do, or for plain HTTP.
    """

    url: str
    ca_config_map: str = ""

    def environment(self, job: Key) -> dict[str, str]:
        """Variables for every container."""
        told = {
            "URL": self.url.rstrip("/") + path(job),
            "TOKEN_FILE": f"{_FOLDER}/{_TOKEN_FILE}",
            "CA_FILE": f"{_FOLDER}/{_CA_FILE}" if self.ca_config_map else "",
        }
        known = {key: value for key, value in told.items() if value}
        kubeflow = {"URL": "URL", "TOKEN_FILE": "TOKEN", "CA_FILE": "CA_CERT"}
        return {
            **{f"BIREME_PROGRESS_{key}": value for key, value in known.items()},
            **{f"KUBEFLOW_TRAINER_SERVER_{kubeflow[key]}": value for key, value in known.items()},
        }

    def mounted(self, spec: dict[str, Any]) -> dict[str, Any]:
        """``spec`` of a pod with the volume in every container; as it is where it is malformed."""
        volumes, containers = spec.get("volumes") or [], spec["containers"]
        mounts = [c.get("volumeMounts") or [] for c in containers]
        if not all(isinstance(given, list) for given in (volumes, *mounts)):
            return spec  # the API server will refuse it, and say why
        mount = {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}
        return {
            **spec,
            "volumes": [*volumes, self._volume()],
            "containers": [
                {**container, "volumeMounts": [*given, mount]}
                for container, given in zip(containers, mounts, strict=True)
            ],
        }

    def _volume(self) -> dict[str, Any]:
        token = {
            "audience": AUDIENCE,
            "expirationSeconds": _TOKEN_SECONDS,
            "path": _TOKEN_FILE,
        }
        sources: list[dict[str, Any]] = [{"serviceAccountToken": token}]
        if self.ca_config_map:
            items = [{"key": _CA_FILE, "path": _CA_FILE}]
            sources.append({"configMap": {"name": self.ca_config_map, "items": items}})
        return {"name": _VOLUME, "projected": {"sources": sources}}
