"""Checks of fields of pods, and of templates, beside those of their resources.

Source: ``k8s.io/kubernetes/pkg/apis/core/validation``, with its messages.
"""

import re
from typing import Any, Final

from bireme_lab.embedded.api import metadata
from bireme_lab.embedded.api.errors import Faults, Object

_OF_POD: Final = ("spec.containers", "spec.initContainers")
"""Paths of containers of pods, apart from those of templates."""
_MAX_SECONDS: Final = 2**31 - 1
_MAX_PORT: Final = 65_535
_PULLS: Final = ("Always", "IfNotPresent", "Never")
_DNS: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_TOLERATED: Final = ("Equal", "Exists", "Gt", "Lt")
_PRINTABLE: Final = re.compile(r"[ -<>-~]+")
_NO_KEY: Final = (
    'operator must be Exists when `key` is empty, which means "match all values and all keys"'
)
_ENV_WORDS: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than "
    "'='"
)


def check_spec(spec: Object, faults: Faults, path: str) -> None:
    """Add the faults of fields of the spec itself."""
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_SECONDS:
        text = f"must be between 1 and {_MAX_SECONDS}, inclusive"
        faults.invalid(f"{path}.activeDeadlineSeconds", deadline, text)
    dns = spec.get("dnsPolicy")
    if dns not in (None, "", *_DNS):
        faults.unsupported(f"{path}.dnsPolicy", dns, _DNS)
    if dns == "None" and not spec.get("dnsConfig"):
        text = "must provide `dnsConfig` when `dnsPolicy` is None"
        faults.required(f"{path}.dnsConfig", text)
    for key, value in (spec.get("nodeSelector") or {}).items():
        metadata.check_label(key, value, faults, f"{path}.nodeSelector")
    _check_tolerations(spec.get("tolerations") or (), faults, f"{path}.tolerations")
    _check_gates(spec.get("schedulingGates") or (), faults, f"{path}.schedulingGates")


def check_container(container: Object, faults: Faults, path: str) -> None:
    """Add the faults of a container's image, environment and ports."""
    image, pull = container.get("image") or "", container.get("imagePullPolicy")
    if not image:
        faults.required(f"{path}.image")
    elif image != image.strip() and path.startswith(_OF_POD):
        faults.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    for index, port in enumerate(container.get("ports") or ()):
        number, place = port.get("containerPort"), f"{path}.ports[{index}].containerPort"
        if not number:
            faults.required(place)
        elif not 1 <= number <= _MAX_PORT:
            faults.invalid(place, number, f"must be between 1 and {_MAX_PORT}, inclusive")
    for index, variable in enumerate(container.get("env") or ()):
        name, place = variable.get("name") or "", f"{path}.env[{index}].name"
        if not name:
            faults.required(place)
        elif not _PRINTABLE.fullmatch(name):
            faults.invalid(place, name, _ENV_WORDS)
    if pull not in (None, *_PULLS):
        faults.unsupported(f"{path}.imagePullPolicy", pull, _PULLS)


def _check_tolerations(tolerations: Any, faults: Faults, path: str) -> None:
    for index, toleration in enumerate(tolerations):
        operator, place = toleration.get("operator"), f"{path}[{index}].operator"
        if not toleration.get("key") and operator != "Exists":
            text = _NO_KEY
            faults.invalid(place, operator or "", text)
        if operator == "Exists" and toleration.get("value"):
            text = "value must be empty when `operator` is 'Exists'"
            faults.invalid(place, toleration["value"], text)
        elif operator not in (None, "", *_TOLERATED):
            faults.unsupported(place, operator, ("Equal", "Exists"))


def _check_gates(gates: Any, faults: Faults, path: str) -> None:
    names: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        for fault in metadata.qualified_name_faults(name):
            faults.invalid(f"{path}[{index}]", name, fault)
        if name in names:
            faults.duplicate(f"{path}[{index}]", name)
        names.add(name)
