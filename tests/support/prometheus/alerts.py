"""Alert rules as promtool judges them: which fires when, and with what words."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.prometheus.programs import Programs


@dataclass(frozen=True, slots=True)
class Judge:
    """The rules of one file; what promtool needs is written into ``folder``."""

    programs: Programs
    rules: Path
    folder: Path

    def fires(self, alert: str, series: dict[str, str], at: str, **said: str) -> None:
        """``alert`` fires ``at`` that time, with labels and value as ``said``.

        ``series`` is in promtool's notation, one value every five minutes.

        Raises:
            AssertionError: it does not, in promtool's words.
        """
        rule = next(rule for rule in alerts(self.rules) if rule["alert"] == alert)
        labels = {name: text for name, text in said.items() if name != "value"}
        words = {name: filled(text, said) for name, text in rule["annotations"].items()}
        expected = {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": words}
        self._judge(alert, series, at, [expected])

    def is_silent(self, alert: str, series: dict[str, str], at: str) -> None:
        """The same for one that does not fire."""
        self._judge(alert, series, at, [])

    def _judge(
        self, alert: str, series: dict[str, str], at: str, expected: list[dict[str, Any]]
    ) -> None:
        asked = {"eval_time": at, "alertname": alert, "exp_alerts": expected}
        given = [{"series": name, "values": values} for name, values in series.items()]
        case = {"interval": "5m", "input_series": given, "alert_rule_test": [asked]}
        files = {"rule_files": [str(self.rules)], "evaluation_interval": "1m", "tests": [case]}
        test = self.folder / "test.yaml"
        test.write_text(yaml.safe_dump(files))
        command = [str(self.programs.promtool), "test", "rules", str(test)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)


def alerts(rules: Path) -> list[dict[str, Any]]:
    """The alerting rules of a file."""
    groups = yaml.safe_load(rules.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def filled(text: str, said: dict[str, str]) -> str:
    """A template of an annotation, filled in as Prometheus does."""
    text = re.sub(r"{{ \$value [^}]*}}", said.get("value", ""), text)
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: said.get(found[1], ""), text)
