"""A real Prometheus on loopback, and promtool as the judge of alert rules."""

import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.controlplane.binaries import cache_root, output
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.process import Process, free_ports


class Unavailable(RuntimeError):  # noqa: N818  # what it is, as a test that skips says it
    """No Prometheus is here and none can be had, for the reason given."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The server, and the tool that checks rules and fills in history."""

    prometheus: Path
    promtool: Path


def find_programs() -> Programs:
    """Find them on PATH, in the cache, or in the machine's package archive; else Unavailable."""
    on_path = [shutil.which(name) for name in ("prometheus", "promtool")]
    if all(on_path):
        return Programs(*(Path(found) for found in on_path if found))
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("neither prometheus and promtool nor apt-get are on PATH")
    folder = cache_root() / "debian" / f"{PACKAGE}-{_candidate()}-{platform.machine()}"
    if not folder.is_dir():
        _unpack(folder)
    return Programs(folder / "usr/bin/prometheus", folder / "usr/bin/promtool")


def _candidate() -> str:
    found = re.search(r"Candidate: ([^\s()]+)", _run(["apt-cache", "policy", PACKAGE], None))
    if found is None:
        raise Unavailable(f"apt knows no package {PACKAGE}: run apt-get update, or install it")
    return re.sub(r"[^\w.+~-]", "_", found[1])


def _unpack(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        partial = Path(name)
        _run(["apt-get", "download", PACKAGE], partial)
        (archive,) = partial.glob("*.deb")
        _run(["dpkg-deb", "--extract", str(archive), str(partial / "files")], partial)
        if not folder.is_dir():  # another test session may have been quicker
            (partial / "files").rename(folder)


def _run(command: list[str], folder: Path | None) -> str:
    try:
        return output(command, timeout_seconds=_SECONDS, folder=folder)
    except ControlPlaneError as error:
        raise Unavailable(str(error)) from error


@dataclass(frozen=True, slots=True)
class Samples:
    """One series of a gauge; ``points`` are POSIX seconds, ascending, and values."""

    name: str
    labels: Mapping[str, str]
    points: Iterable[tuple[float, float]]


@contextmanager
def serving(
    programs: Programs, folder: Path, history: Sequence[Samples] = (), targets: Sequence[str] = ()
) -> Iterator[str]:
    """Serve ``history`` and scrapes of ``targets`` (hosts with ports); yield the address.

    ``history`` has series of one name side by side.
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
        # By default history older than 15 days would be dropped at the start.
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
    text = folder / "history.txt"
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


def alerts(rules: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load(rules.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


PACKAGE: Final = "prometheus"
_SECONDS: Final = 300.0
