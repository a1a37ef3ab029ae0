"""What the chart renders, kept in ``tests/golden/chart``: by default, and with everything on.

What an embedded cluster has of it is a file of ``bireme_lab``.

``python -m tools.docs.reference --write --chart`` renews the files.
"""

import copy
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml

from testbed.controlplane.api import Manifest
from testbed.scenario import embedded_chart
from testbed.scenario.helm import Helm

GOLDEN: Final = Path(__file__).parents[2] / "tests" / "golden" / "chart"
DEFAULT: Final = GOLDEN / "default.yaml"
"""All that the chart renders by default, CRDs and dashboards aside."""
ADMISSION: Final = GOLDEN / "admission.yaml"
"""Admission policies and bindings with every value set and every policy on."""
EVERY_VALUE: Final = GOLDEN / "every-value.yaml"
"""Every value of the chart, none at its default."""
WITHOUT_CRDS: Final = "--set=crds.enabled=false,monitoring.dashboards.enabled=false"
COMPONENTS: Final = ("operator", "scheduler", "forecast")
_HEADER: Final = "# Rendered by `python -m tools.docs.reference --write --chart`.\n"


def every_value() -> Manifest:
    values: Manifest = yaml.safe_load(EVERY_VALUE.read_text())
    return values


def with_switches(values: Manifest) -> Manifest:
    """Return the values with everything that can be left out installed, and nothing hidden."""
    shown = copy.deepcopy(values)
    shown["global"] = {}
    shown["operator"]["mode"] = "Apply"
    shown["defaultQueue"]["create"] = shown["learnedShadow"]["create"] = True
    shown["priorityAndFairness"]["enabled"] = shown["networkPolicies"]["enabled"] = True
    shown["admission"]["enforce"]["enabled"] = shown["admission"]["operator"]["enabled"] = True
    shown["forecast"]["enabled"] = shown["monitoring"]["dashboards"]["enabled"] = True
    for component in COMPONENTS:
        shown[component]["serviceAccount"]["create"] = True
        shown[component].get("podDisruptionBudget", {})["enabled"] = True
        shown[component]["image"]["digest"] = ""
    shown["scheduler"]["extender"]["image"]["digest"] = ""
    return shown


def render(helm: Helm) -> dict[Path, str]:
    """Return the text of every rendering by its file."""
    values = with_switches(every_value())
    values["admission"] |= dict.fromkeys(("use", "pods", "status", "resize"), True)
    values["operator"]["settings"]["outlook"] = True
    with TemporaryDirectory() as folder:
        path = Path(folder) / "values.yaml"
        path.write_text(json.dumps(values))
        everything = helm.template(WITHOUT_CRDS, f"--values={path}")
    documents = everything.split("---\n")
    policies = [each for each in documents if "\nkind: ValidatingAdmissionPolicy" in each]
    return {
        DEFAULT: helm.template(WITHOUT_CRDS),
        ADMISSION: "---\n".join((_HEADER, *policies)),
        embedded_chart.PATH: embedded_chart.lines(
            helm.template(WITHOUT_CRDS, embedded_chart.VALUES)
        ),
    }
