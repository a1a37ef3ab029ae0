"""Egress that the chart's NetworkPolicies allow Bireme's programs. Nothing here enforces them."""

import json
from pathlib import Path

import pytest
import yaml

from testbed.controlplane.api import Manifest
from testbed.scenario.helm import Helm

pytestmark = pytest.mark.cluster


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(tmp_path)


def egress_of(helm: Helm, *flags: str) -> dict[str, list[Manifest] | None]:
    """By component where its pods may go, as its NetworkPolicy says; None for anywhere."""
    text = helm.template("--show-only=templates/network-policies.yaml", *flags)
    found = {}
    for policy in yaml.safe_load_all(text):
        spec = policy["spec"]
        assert ("egress" in spec) == ("Egress" in spec["policyTypes"])
        found[policy["metadata"]["name"].removeprefix("bireme-")] = spec.get("egress")
    return found


def test_programs_may_go_anywhere_until_somebody_says_where_the_api_server_is(helm: Helm) -> None:
    assert egress_of(helm) == dict.fromkeys(("operator", "scheduler", "forecast", "test"))


def test_each_program_may_then_reach_what_it_needs_and_nothing_else(helm: Helm) -> None:
    at = "networkPolicies.egress"
    peers = [{"ipBlock": {"cidr": "192.0.2.1/32"}}]
    api_server = {"ports": [{"port": 6443, "protocol": "TCP"}], "to": peers}
    dns = {"ports": [{"port": 53, "protocol": protocol} for protocol in ("TCP", "UDP")]}
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    history = {"ports": [{"port": 9090, "protocol": "TCP"}]}
    assert egress_of(
        helm,
        f"--set={at}.enabled=true,{at}.apiServer.ports={{6443}}",
        f"--set-json={at}.apiServer.to={json.dumps(peers)}",
    ) == {
        "operator": [api_server, dns],
        "scheduler": [api_server, dns],
        "test": [api_server, dns],
        "forecast": [api_server, dns, history | {"to": [{"namespaceSelector": monitoring}]}],
    }
