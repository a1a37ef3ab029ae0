"""Official releases: programs for Linux that their projects publish, compared with published sums.

Kubernetes has a sum beside each program, and etcd a list of sums beside its archives. kwok has none
there: its sums are the digests that GitHub computed when the programs were uploaded, and gives in
the description of a release.
"""

import hashlib
import json
import platform
import queue
import shutil
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError, ProtocolError

from testbed.controlplane.compiling import REPORT_SECONDS, Report, minutes
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.installed import Program, version_objection

PROBE_SECONDS: Final = 3.0
"""Time for all sites together to answer; compiling begins after it where none does."""
DOWNLOAD_SECONDS: Final = 600.0
"""Time for all programs together; a slower network is no faster than a compiler."""
READ_SECONDS: Final = 10.0
CHUNK_BYTES: Final = 1 << 20
MEGABYTE: Final = 1_000_000
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names that releases give to what :func:`platform.machine` returns."""


@dataclass(frozen=True, slots=True)
class Sites:
    """Base URLs that releases lie under."""

    kubernetes: str = "https://dl.k8s.io/release"
    github: str = "https://github.com"
    github_api: str = "https://api.github.com"


OFFICIAL: Final = Sites()


def download(
    programs: Sequence[Program],
    folder: Path,
    report: Report,
    sites: Sites = OFFICIAL,
    timeout_seconds: float = DOWNLOAD_SECONDS,
) -> list[Path]:
    """Download ``programs`` into ``folder``; return the whole ones, and say why others are not.

    Incomplete files may remain in ``folder``.
    """
    if not programs:
        return []
    architecture = ARCHITECTURES.get(platform.machine())
    if sys.platform != "linux" or architecture is None:
        report(f"there are no official releases for {sys.platform} on {platform.machine()}")
        return []
    assets = _reachable_assets([_asset(each, architecture, sites) for each in programs], report)
    return _download_all(assets, folder, _Meter(timeout_seconds), report)


# --- the files of a release ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asset:
    """A program's file: its URL, that of its sum, and the function that reads the sum from there.

    ``member`` is the program's path in an archive; empty when the file is the program.
    """

    program: Program
    url: str
    sums_url: str
    read_sum: Callable[[str, str], str]
    member: str = ""

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def hosts(self) -> set[str]:
        return {_host(self.url), _host(self.sums_url)}


def _asset(program: Program, architecture: str, sites: Sites) -> _Asset:
    name, version = program.name, program.version
    match program.project:
        case "kubernetes":
            url = f"{sites.kubernetes}/{version}/bin/linux/{architecture}/{name}"
            return _Asset(program, url, f"{url}.sha256", _only_sum)
        case "etcd":
            base = f"{sites.github}/etcd-io/etcd/releases/download/{version}"
            archive = f"etcd-{version}-linux-{architecture}"
            url = f"{base}/{archive}.tar.gz"
            return _Asset(program, url, f"{base}/SHA256SUMS", _listed_sum, f"{archive}/{name}")
        case "kwok":
            path = "kubernetes-sigs/kwok/releases"
            url = f"{sites.github}/{path}/download/{version}/{name}-linux-{architecture}"
            return _Asset(program, url, f"{sites.github_api}/repos/{path}/tags/{version}", _digest)


def _only_sum(text: str, file_name: str) -> str:
    return (text.split() or [""])[0]


def _listed_sum(text: str, file_name: str) -> str:
    """Read a list that ``sha256sum`` wrote."""
    rows = (line.split() for line in text.splitlines())
    return next((row[0] for row in rows if len(row) == 2 and row[1] == file_name), "")


def _digest(text: str, file_name: str) -> str:
    """Read GitHub's description of a release."""
    try:
        digests = {each["name"]: each["digest"] or "" for each in json.loads(text)["assets"]}
    except (ValueError, LookupError, TypeError):
        return ""
    algorithm, _, value = str(digests.get(file_name, "")).partition(":")
    return value if algorithm == "sha256" else ""


# --- whether their sites can be reached ---------------------------------------------------------


def _reachable_assets(assets: Sequence[_Asset], report: Report) -> list[_Asset]:
    """Return the assets whose sites answer; one request to each site, all at the same time."""
    urls = {_host(url): url for asset in assets for url in (asset.url, asset.sums_url)}
    answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    for host, url in urls.items():
        # Nothing bounds the search for a host's address. Such a thread may outlive the limit.
        threading.Thread(
            target=lambda host, url: answers.put((host, _probe(url))),
            args=(host, url),
            name=f"probe-{host}",
            daemon=True,
        ).start()
    failures = dict.fromkeys(urls, f"no answer within {PROBE_SECONDS:g} s")
    deadline_seconds = time.monotonic() + PROBE_SECONDS
    for _ in urls:
        try:
            host, failure = answers.get(timeout=max(0.0, deadline_seconds - time.monotonic()))
        except queue.Empty:
            break
        failures[host] = failure
    failures = {host: failure for host, failure in failures.items() if failure}
    if failures:
        hosts = ", ".join(f"{host} ({failure})" for host, failure in failures.items())
        names = ", ".join(each.program.name for each in assets if each.hosts & failures.keys())
        report(f"official releases cannot be reached: {hosts}; compiled instead: {names}")
    return [each for each in assets if not each.hosts & failures.keys()]


def _probe(url: str) -> str:
    """Return why no HTTP server answers; empty when one does, with whatever status."""
    try:
        requests.head(url, timeout=PROBE_SECONDS, allow_redirects=True).close()
    except (requests.RequestException, OSError) as error:
        return type(error).__name__
    return ""


def _host(url: str) -> str:
    return urlsplit(url).netloc


# --- downloading --------------------------------------------------------------------------------


class _DownloadError(ControlPlaneError):
    """A file that is not what was published, or did not come."""


class _Meter:
    """Bytes that all downloads have and expect, and when they must end."""

    def __init__(self, timeout_seconds: float) -> None:
        self._lock = threading.Lock()
        self._received_bytes = 0
        self._expected_bytes = 0
        self._began_seconds = time.monotonic()
        self._timeout_seconds = timeout_seconds
        self._is_cancelled = False

    def expect(self, size_bytes: int) -> None:
        with self._lock:
            self._expected_bytes += size_bytes

    def receive(self, size_bytes: int) -> None:
        """Count a chunk.

        Raises:
            _DownloadError: time is up.
        """
        with self._lock:
            self._received_bytes += size_bytes
        if self._is_cancelled or self._took_seconds() > self._timeout_seconds:
            raise _DownloadError(f"takes longer than {minutes(self._timeout_seconds)}")

    def cancel(self) -> None:
        self._is_cancelled = True

    def text(self) -> str:
        """Return such as ``120 of 400 MB are downloaded, 0:45 so far, about 1:45 left``."""
        received, expected = self._received_bytes, self._expected_bytes
        line = f"{received // MEGABYTE} of {expected // MEGABYTE} MB are downloaded"
        line += f", {minutes(self._took_seconds())} so far"
        if 0 < received < expected:
            line += f", about {minutes(self._took_seconds() * (expected / received - 1))} left"
        return line

    def _took_seconds(self) -> float:
        return time.monotonic() - self._began_seconds


def _download_all(
    assets: Iterable[_Asset], folder: Path, meter: _Meter, report: Report
) -> list[Path]:
    with ThreadPoolExecutor(thread_name_prefix="download") as pool:
        futures = {pool.submit(_fetch, each, folder, meter): each for each in assets}
        try:
            while wait(futures, timeout=REPORT_SECONDS).not_done:
                report(meter.text())
        except BaseException:  # Ctrl-C as well: no thread may go on downloading
            meter.cancel()
            raise
    # The system runs no file that is open for writing: all threads have ended here.
    programs = []
    for future, asset in futures.items():
        name, version = asset.program.name, asset.program.version
        try:
            path = future.result()
            if objection := version_objection(asset.program, path):
                raise _DownloadError(objection)
        except _DownloadError as error:
            report(f"{name} is compiled: the download {asset.url} {error}")
        else:
            programs.append(path)
            report(f"{name} {version} is downloaded: {asset.url}, {path.stat().st_size:,} bytes")
    return programs


def _fetch(asset: _Asset, folder: Path, meter: _Meter) -> Path:
    """Return the downloaded program, in ``folder``.

    Raises:
        _DownloadError: says why it cannot be used; completes a sentence that begins with its URL.
    """
    try:
        sums = b"".join(_chunks(asset.sums_url, meter)).decode("utf-8", "replace")
        required = asset.read_sum(sums, asset.file_name).lower()
        if not required:
            raise _DownloadError(f"has no sum in {asset.sums_url}")
        file = folder / f"{asset.program.name}.download"
        computed = _save(asset.url, file, meter)
        if computed != required:
            raise _DownloadError(
                f"has the SHA-256 sum {computed}; {asset.sums_url} says {required}"
            )
        program = folder / asset.program.name
        if asset.member:
            _extract(file, asset.member, program)
        else:
            file.rename(program)
    except (requests.RequestException, HTTPError, OSError, ValueError, tarfile.TarError) as error:
        raise _DownloadError(f"failed: {error}") from error
    program.chmod(0o755)
    return program


def _save(url: str, file: Path, meter: _Meter) -> str:
    """Write a file and return its sum."""
    digest = hashlib.sha256()
    with file.open("wb") as target:
        for chunk in _chunks(url, meter):
            digest.update(chunk)
            target.write(chunk)
    return digest.hexdigest()


def _chunks(url: str, meter: _Meter) -> Iterator[bytes]:
    headers = {"Accept-Encoding": "identity"}  # the sum is of the bytes as they lie there
    timeout = (PROBE_SECONDS, READ_SECONDS)
    with requests.get(url, stream=True, timeout=timeout, headers=headers) as response:
        if response.status_code != requests.codes.ok:
            raise _DownloadError(f"failed: {url} answers with status {response.status_code}")
        expected = int(response.headers.get("Content-Length") or 0)
        meter.expect(expected)
        received = 0
        try:
            # Not iter_content: from a server that drips, its chunks would take hours to fill.
            while chunk := response.raw.read1(CHUNK_BYTES):
                received += len(chunk)
                meter.receive(len(chunk))
                yield chunk
        except ProtocolError as error:
            raise _DownloadError(
                f"failed: {url} ended after {received:,} of {expected:,} bytes"
            ) from error


def _extract(archive: Path, member: str, program: Path) -> None:
    with tarfile.open(archive) as files:
        try:
            source = files.extractfile(member)
        except KeyError:
            source = None
        if source is None:
            raise _DownloadError(f"has no file {member}")
        with source, program.open("wb") as target:
            shutil.copyfileobj(source, target)
