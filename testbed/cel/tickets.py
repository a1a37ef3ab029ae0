"""The chart's policy on tickets, where no chart is installed."""

from pathlib import Path
from typing import Final

import yaml

from bireme_lab.embedded.cel.policies import BINDING, POLICY
from testbed.controlplane.api import Manifest

_TICKETS: Final = Path(__file__).parents[2] / "charts" / "bireme" / "files" / "ticket-policy.yaml"


def ticket_policies() -> tuple[Manifest, Manifest]:
    """Return the chart's policy on tickets and its binding, where no chart is installed."""
    name = "bireme-tickets"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return (
        {**head, "kind": POLICY, "spec": yaml.safe_load(_TICKETS.read_text())},
        {**head, "kind": BINDING, "spec": bound},
    )
