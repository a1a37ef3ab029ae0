"""``bireme_lab/embedded/chart.jsonl``: the chart on an embedded cluster, one manifest a line.

Nothing of it runs there: the programs are processes of the machine. The chart's kinds, accounts,
roles and admission policies rule there as on a cluster.
"""

import json
from pathlib import Path
from typing import Any, Final

import yaml

from bireme.kube import crd

PATH: Final = Path(__file__).parents[2] / "policies" / "bireme_lab" / "embedded" / "chart.jsonl"
VALUES: Final = "--set=operator.settings.outlook=true,operator.progress.enabled=true"
"""Users of an embedded cluster may ask when a job would start, and jobs report their progress."""
_NAMESPACE: Final = "bireme-system"
# In an order in which each finds what it refers to.
_KINDS: Final = (
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


def lines(rendering: str) -> str:
    """Return the file, from the API models and a rendering of the chart."""
    manifests = [each for each in yaml.safe_load_all(rendering) if each]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    documents = [
        *(crd.definition(kind) for kind in crd.KINDS),
        namespace,
        *(each for kind in _KINDS for each in manifests if _is_part(each, kind)),
    ]
    return "".join(f"{json.dumps(each)}\n" for each in documents)


def _is_part(manifest: dict[str, Any], kind: str) -> bool:
    """Return whether a manifest is of a kind, and no hook that Helm runs by itself."""
    annotations = manifest["metadata"].get("annotations") or {}
    return manifest["kind"] == kind and "helm.sh/hook" not in annotations
