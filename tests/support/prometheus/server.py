"""A Prometheus of one's own: its history is filled in before it starts, or scraped by itself."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support.prometheus.programs import Programs
from tools.controlplane.ports import free_ports
from tools.controlplane.process import Process


@dataclass(frozen=True, slots=True)
class Samples:
    """One series of a gauge.

    Attributes:
        labels: Its labels but the name.
        points: POSIX seconds, ascending, and values.
    """

    name: str
    labels: Mapping[str, str]
    points: Iterable[tuple[float, float]]


@contextmanager
def serving(
    programs: Programs,
    folder: Path,
    history: Sequence[Samples] = (),
    targets: Sequence[str] = (),
) -> Iterator[str]:
    """The address of a server that knows ``history`` and scrapes ``targets`` every second.

    ``history`` has series of one name side by side; ``targets`` are hosts with ports.
    """
    (port,) = free_ports(1)
    if history:
        _fill_in(programs, folder, history)
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "bireme", "static_configs": [{"targets": [*targets]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    url = f"http://127.0.0.1:{port}"
    command = [
        str(programs.prometheus),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=10y",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    server = Process("prometheus", command, folder / "prometheus.log", f"{url}/-/ready")
    try:
        server.start().wait_ready()
        yield url
    finally:
        server.terminate()


def _fill_in(programs: Programs, folder: Path, history: Iterable[Samples]) -> None:
    text = folder / "tests.support.history.txt"
    with text.open("w") as file:
        told = ""
        for series in history:
            if series.name != told:
                file.write(f"# TYPE {series.name} gauge\n")
                told = series.name
            labels = ",".join(f'{name}="{value}"' for name, value in series.labels.items())
            lines = (f"{series.name}{{{labels}}} {v} {at:.0f}\n" for at, v in series.points)
            file.writelines(lines)
        file.write("# EOF\n")
    # The file is read once for every block: in blocks of two hours that would take minutes.
    command = ["tsdb", "create-blocks-from", "--max-block-duration=10000h", "openmetrics"]
    subprocess.run(
        [str(programs.promtool), *command, str(text), str(folder / "data")],
        capture_output=True,
        timeout=120,
        check=True,
    )
