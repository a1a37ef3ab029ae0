"""A kube-scheduler of its own: its configuration, command and environment."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

_CHART_VALUES: Final = Path(__file__).parents[2] / "charts" / "bireme" / "values.yaml"


def render_scheduler_config(given: Mapping[str, Any], kubeconfig: Path, extender_port: int) -> str:
    config = copy.deepcopy(dict(given))
    config["clientConnection"]["kubeconfig"] = str(kubeconfig)
    (extender,) = config["extenders"]
    extender["urlPrefix"] = f"http://127.0.0.1:{extender_port}"
    return yaml.safe_dump(config)


def scheduler_environment() -> dict[str, str]:
    """Return what the chart sets in kube-scheduler's environment by default."""
    values = yaml.safe_load(_CHART_VALUES.read_text())
    return {"GOGC": str(values["scheduler"]["garbagePercent"])}


def scheduler_command(program: Path, config: Path, port: int) -> list[str]:
    """Return kube-scheduler's command, serving health and metrics on loopback ``port`` (https).

    Nobody is authenticated there, and nothing else is served.
    """
    return [
        str(program),
        f"--config={config}",
        "--v=2",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
    ]
