"""``charts/bireme/README.md``: what the chart takes, from the comments of ``values.yaml``."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.controlplane.binaries import KUBERNETES_VERSION, module_version
from tools.docs.reference.tables import code, table

CHART: Final = Path(__file__).parents[3] / "charts" / "bireme"
_KEY: Final = re.compile(r"( *)([A-Za-z]+):")


def page() -> str:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    text = (CHART / "values.yaml").read_text()
    rows = list(_rows(yaml.safe_load(text), comments(text), ""))
    versions = {
        "oldest": chart["kubeVersion"].removeprefix(">=").removesuffix(".0-0"),
        "kubernetes": KUBERNETES_VERSION.removeprefix("v"),
        "helm": module_version("helm", "helm.sh/helm/v4").removeprefix("v"),
    }
    return _HEAD.format(**chart, **versions) + table(("value", "default", "meaning"), rows)


def comments(text: str) -> dict[str, str]:
    """Map keys, such as ``crds.enabled``, to the comment above them; only keys with one."""
    found: dict[str, str] = {}
    path: list[str] = []
    above: list[str] = []
    # Line by line, as the YAML parser drops comments.
    for line in text.splitlines():
        key = _KEY.match(line)
        if line.lstrip().startswith("#"):
            above.append(line.lstrip("# "))
            continue
        if key:
            path[len(key[1]) // 2 :] = [key[2]]
            if above:
                found[".".join(path)] = " ".join(above)
        above = []
    return found


def _rows(values: dict[str, Any], meanings: dict[str, str], path: str) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        here = f"{path}{key}"
        meaning = meanings.get(here, _USUAL.get(key, ""))
        if isinstance(value, dict) and value and key not in _WHOLE:
            if meaning:
                yield code(here), "", meaning
            yield from _rows(value, meanings, f"{here}.")
        else:
            yield code(here), code(value) or '`""`', meaning


# Maps that are parts of other objects: one entry each.
_WHOLE: Final = {"spec", "resources", "podSecurityContext", "containerSecurityContext"}

_USUAL: Final = {
    "replicas": "How many pods.",
    "repository": "Its image.",
    "digest": "Such as sha256:..., which wins over the tag.",
    "resources": "Of its container.",
    "extraEnv": "Variables of its container beside the chart's.",
    "extraVolumes": "Volumes of its pods beside the chart's.",
    "extraVolumeMounts": "Mounts of its container beside the chart's.",
    "podSecurityContext": "Over podSecurityContext of all pods, field by field.",
    "containerSecurityContext": "Over containerSecurityContext of all containers, likewise.",
    "priorityClassName": "Before whom its pods go.",
    "nodeSelector": "Where its pods may run.",
    "tolerations": "Taints its pods put up with.",
    "affinity": "Where its pods would rather run.",
    "topologySpreadConstraints": "How its pods spread.",
    "podAnnotations": "Annotations on its pods.",
    "podLabels": "Labels on its pods.",
    "deploymentAnnotations": "Annotations on its Deployment.",
    "strategy": "How its Deployment replaces pods; empty for RollingUpdate, Kubernetes' own.",
    "create": "Whether to make it.",
    "annotations": "Annotations on it.",
    "pullPolicy": "When the node asks the registry.",
    "enabled": "Whether to install it.",
}
"""Meanings of keys that many parts of the chart have."""

_HEAD: Final = """# Chart {name}

{description}. Version {version}; written by `make reference` from `values.yaml`.

Needs Kubernetes {oldest} or newer (tested with {kubernetes}), Helm (tested with {helm}) and the
rights of a cluster administrator: it makes CustomResourceDefinitions, ClusterRoles and bindings, a
RoleBinding in kube-system, and ValidatingAdmissionPolicies. No image is published:
[images](../../docs/images.md) says how they come into your registry.

```sh
helm install bireme charts/bireme -n bireme-system --create-namespace \\
  --set image.registry=registry.example.com/team
```

`values.schema.json` refuses a value it does not know. Three files of values come with the chart:
[values-production.yaml](values-production.yaml) for a cluster that people depend on,
[values-openshift.yaml](values-openshift.yaml), and
[values-kind.yaml](values-kind.yaml) for a small machine. The
[quick start](../../docs/quickstart.md) goes from here to a running gang,
[operations](../../docs/operations.md) to upgrades and to what happens when a part is dead.

"""
