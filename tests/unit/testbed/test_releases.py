"""Downloads of official releases, from a server of this machine that has all their files."""

import hashlib
import io
import json
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from testbed.controlplane import releases
from testbed.controlplane.installed import Program
from testbed.controlplane.releases import OFFICIAL, Sites, download

KUBERNETES = [Program(name, "v1.37.1", "kubernetes") for name in ("kubectl", "kube-scheduler")]
ETCD = Program("etcd", "v3.6.14", "etcd")
KWOK = Program("kwok", "v0.8.0", "kwok")
PROGRAMS = [ETCD, *KUBERNETES, KWOK]
KUBECTL = "/release/v1.37.1/bin/linux/amd64/kubectl"
ETCD_FILES = "/etcd-io/etcd/releases/download/v3.6.14"
ARCHIVE_NAME = "etcd-v3.6.14-linux-amd64.tar.gz"
ARCHIVE = f"{ETCD_FILES}/{ARCHIVE_NAME}"
KWOK_FILE = "/kubernetes-sigs/kwok/releases/download/v0.8.0/kwok-linux-amd64"
DESCRIPTION = "/repos/kubernetes-sigs/kwok/releases/tags/v0.8.0"

Answer = Callable[["Handler"], None]


class Server(ThreadingHTTPServer):
    """Answers with ``files``, by path, and a proxy for them; ``answers`` take the place of one."""

    daemon_threads = True
    block_on_close = False  # a test of a server that hangs does not wait for it

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def sites(self) -> Sites:
        return Sites(f"{self.url}/release", self.url, self.url)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.server.requests.append((self.command, self.path))
        if answer := self.server.answers.get(path):
            with suppress(ConnectionError):  # the client is gone when a server hangs
                answer(self)
        elif (body := self.server.files.get(path)) is not None:
            self.give(body, len(body))
        else:
            self.send_error(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def give(self, body: bytes, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def program(words: str) -> bytes:
    return f"#!/bin/sh\ncat <<'END'\n{words}\nEND\n".encode()


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def archive(body: bytes, member: str = "etcd-v3.6.14-linux-amd64/etcd") -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as files:
        info = tarfile.TarInfo(member)
        info.size = len(body)
        files.addfile(info, io.BytesIO(body))
    return written.getvalue()


def release_files() -> dict[str, bytes]:
    """All files of the releases, by path."""
    etcd = archive(program("etcd Version: 3.6.14"))
    kwok = program("kwok version v0.8.0 go1.26.8 (linux/amd64)")
    assets = [{"name": "kwok-linux-amd64", "digest": f"sha256:{sha256(kwok)}"}]
    files = {
        ARCHIVE: etcd,
        f"{ETCD_FILES}/SHA256SUMS": f"0a  other\n{sha256(etcd)}  {ARCHIVE_NAME}\n".encode(),
        KWOK_FILE: kwok,
        DESCRIPTION: json.dumps({"assets": assets}).encode(),
    }
    for name, words in (
        ("kubectl", '{"clientVersion": {"gitVersion": "v1.37.1"}}'),
        ("kube-scheduler", "Kubernetes v1.37.1"),
    ):
        path = f"/release/v1.37.1/bin/linux/amd64/{name}"
        files |= {path: program(words), f"{path}.sha256": sha256(program(words)).encode()}
    return files


@pytest.fixture(autouse=True)
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of the usual kind, without a proxy of its user."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server(release_files())
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.shutdown()
    served.server_close()
    thread.join()


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    """Holds until the test is over, for a server that does not answer."""
    event = threading.Event()
    yield event
    event.set()


def collect(folder: Path, sites: Sites, *programs: Program, **rest: Any) -> tuple[set[str], str]:
    """Return the names of the programs that were downloaded, and all lines."""
    lines: list[str] = []
    files = download(programs or PROGRAMS, folder, lines.append, sites, **rest)
    assert all(file == folder / file.name and file.exists() for file in files)
    return {file.name for file in files}, "\n".join(lines)


def test_every_program_is_downloaded_and_compared(server: Server, tmp_path: Path) -> None:
    names, text = collect(tmp_path, server.sites)
    assert names == {each.name for each in PROGRAMS}
    assert (tmp_path / "etcd").read_bytes() == program("etcd Version: 3.6.14")
    assert (tmp_path / "kubectl").stat().st_mode & 0o777 == 0o755
    size = len(server.files[KUBECTL])
    assert f"kubectl v1.37.1 is downloaded: {server.url}{KUBECTL}, {size} bytes" in text
    assert len(text.splitlines()) == len(PROGRAMS)


def test_one_request_finds_out_whether_a_site_answers(server: Server, tmp_path: Path) -> None:
    collect(tmp_path, server.sites)
    assert [command for command, _ in server.requests].count("HEAD") == 1


def test_official_sites_are_those_of_the_projects() -> None:
    assert Sites() == OFFICIAL
    assert OFFICIAL.kubernetes == "https://dl.k8s.io/release"
    assert releases.PROBE_SECONDS <= 3


def test_wrong_sum_is_said_with_both_sums(server: Server, tmp_path: Path) -> None:
    server.files[f"{KUBECTL}.sha256"] = b"0" * 64
    names, text = collect(tmp_path, server.sites)
    assert names == {"etcd", "kube-scheduler", "kwok"}
    computed = sha256(server.files[KUBECTL])
    assert (
        f"kubectl is compiled: the download {server.url}{KUBECTL} has the SHA-256 sum {computed}; "
        f"{server.url}{KUBECTL}.sha256 says {'0' * 64}"
    ) in text


@pytest.mark.parametrize("path", [f"{ETCD_FILES}/SHA256SUMS", DESCRIPTION, f"{KUBECTL}.sha256"])
@pytest.mark.parametrize(
    "sums",
    [
        b"",
        b"{}",
        b'{"assets": [{"name": "kwok-linux-amd64"}]}',
        b'{"assets": [{"name": "kwok-linux-amd64", "digest": "md5:00"}]}',
    ],
)
def test_program_without_a_published_sum_is_not_downloaded(
    server: Server, tmp_path: Path, path: str, sums: bytes
) -> None:
    server.files[path] = sums
    name = {DESCRIPTION: "kwok", f"{KUBECTL}.sha256": "kubectl"}.get(path, "etcd")
    names, text = collect(tmp_path, server.sites)
    assert name not in names
    # The sum of a program of Kubernetes is the whole file, whatever it is.
    is_read = path.startswith("/release") and sums
    assert (" says {" if is_read else f" has no sum in {server.url}{path}") in text


def test_connection_that_is_cut_is_said_with_both_sizes(server: Server, tmp_path: Path) -> None:
    server.answers[ARCHIVE] = lambda handler: handler.give(b"x" * 100, 5000)
    names, text = collect(tmp_path, server.sites)
    assert names == {"kubectl", "kube-scheduler", "kwok"}
    url = f"{server.url}{ARCHIVE}"
    assert f"etcd is compiled: the download {url} failed: {url} ended after 100 of 5,000" in text


def test_error_status_is_said(server: Server, tmp_path: Path) -> None:
    del server.files[KWOK_FILE]
    names, text = collect(tmp_path, server.sites)
    assert names == {"etcd", "kubectl", "kube-scheduler"}
    url = f"{server.url}{KWOK_FILE}"
    assert f"kwok is compiled: the download {url} failed: {url} answers with status 404" in text


def test_archive_without_the_program_is_refused(server: Server, tmp_path: Path) -> None:
    body = archive(b"", "etcd-v3.6.14-linux-amd64/README.md")
    server.files |= {ARCHIVE: body}
    server.files[f"{ETCD_FILES}/SHA256SUMS"] = f"{sha256(body)}  {ARCHIVE_NAME}\n".encode()
    names, text = collect(tmp_path, server.sites, ETCD)
    assert names == set()
    assert "has no file etcd-v3.6.14-linux-amd64/etcd" in text


def test_program_of_another_version_is_refused(server: Server, tmp_path: Path) -> None:
    body = program('{"clientVersion": {"gitVersion": "v1.37.0"}}')
    server.files |= {KUBECTL: body, f"{KUBECTL}.sha256": sha256(body).encode()}
    names, text = collect(tmp_path, server.sites)
    assert "kubectl" not in names
    assert f"{server.url}{KUBECTL} has version 1.37.0, and 1.37.1 is needed" in text


def test_sites_that_refuse_are_named_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        names, text = collect(tmp_path, Sites(f"{url}/release", url, url))
    assert names == set()
    assert text == (
        f"official releases cannot be reached: {url[7:]} (ConnectionError); "
        "compiled instead: etcd, kubectl, kube-scheduler, kwok"
    )
    assert not list(tmp_path.iterdir())


def test_server_that_is_silent_is_given_up_at_the_limit(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "PROBE_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and says nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/release"
        names, text = collect(tmp_path, Sites(url, server.url, server.url))
    assert names == {"etcd", "kwok"}, "the programs of other sites are downloaded"
    assert "compiled instead: kubectl, kube-scheduler" in text


def test_search_for_an_address_that_never_ends_is_given_up_at_the_limit(
    tmp_path: Path, hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: hang.wait() and [])
    names, text = collect(tmp_path, OFFICIAL)
    assert names == set()
    assert "dl.k8s.io (no answer within 0.1 s)" in text
    assert len(text.splitlines()) == 1


def test_download_that_drips_ends_at_its_limit(
    server: Server, tmp_path: Path, hang: threading.Event
) -> None:
    def drip(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "5000")
        handler.end_headers()
        for _ in range(500):
            if not hang.wait(0.02):
                handler.wfile.write(b"x")

    server.answers[KUBECTL] = drip
    names, text = collect(tmp_path, server.sites, timeout_seconds=1.0)
    assert names == {"etcd", "kube-scheduler", "kwok"}
    assert "kubectl is compiled" in text
    assert "takes longer than 0:01" in text


def test_long_download_says_how_much_is_left(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "REPORT_SECONDS", 0.01)
    reported = threading.Event()
    body = server.files[KUBECTL]

    def answer(handler: Handler) -> None:
        assert reported.wait(30)
        handler.give(body, len(body))

    server.answers[KUBECTL] = answer

    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        reported.set()

    assert len(download(PROGRAMS, tmp_path, report, server.sites)) == len(PROGRAMS)
    assert lines[0].startswith("0 of 0 MB are downloaded, 0:00 so far")


def test_proxy_of_the_environment_is_used(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("http_proxy", server.url)
    # Names that only the proxy knows.
    sites = Sites("http://kubernetes.invalid/release", "http://git.invalid", "http://api.invalid")
    names, _ = collect(tmp_path, sites)
    assert names == {each.name for each in PROGRAMS}
    assert ("GET", f"http://kubernetes.invalid{KUBECTL}") in server.requests
    assert {urlsplit(path).hostname for command, path in server.requests if command == "HEAD"} == {
        "kubernetes.invalid",
        "git.invalid",
        "api.invalid",
    }


def test_other_systems_compile(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    names, text = collect(tmp_path, server.sites)
    assert names == set()
    assert text == "there are no official releases for darwin on x86_64"
    assert server.requests == []


def test_nothing_missing_asks_nobody(server: Server, tmp_path: Path) -> None:
    assert download([], tmp_path, pytest.fail, server.sites) == []
    assert server.requests == []
