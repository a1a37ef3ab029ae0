"""Credentials: the address of the API server, its CA, and the client's token or certificate.

This module reads the pod's service account and kubeconfigs with a certificate or a token. The
``kubernetes`` package reads all other kubeconfigs, such as those with a program or an identity
provider. It is imported only then, because it costs half a second and 9 MiB. A :class:`Credentials`
value never changes: when the server refuses one (rotated token, new CA), the client loads another
from the same source.
"""

import asyncio
import base64
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_SECONDS: Final = 60.0
"""Interval of reading a service account's token again; the kubelet renews it in time."""

# The package reads a kubeconfig with any other field of the user or the cluster, or both tokens.
_USER_FIELDS: Final = frozenset(
    {
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "token",
        "tokenFile",
    }
)
_CLUSTER_FIELDS: Final = frozenset(
    {
        "certificate-authority",
        "certificate-authority-data",
        "extensions",
        "insecure-skip-tls-verify",
        "proxy-url",
        "server",
        "tls-server-name",
    }
)


class CredentialsError(Exception):
    """The kubeconfig or service account cannot be used; the message names the file and remedy."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """One loaded set: ``server`` has no trailing slash, ``tls`` is False for plain http."""

    server: str
    tls: ssl.SSLContext | bool
    authorization: Callable[[], str | None]
    """Returns the Authorization header's value, None without a token. Raises CredentialsError if
    the token file is missing or empty."""
    server_hostname: str | None = None
    proxy: str | None = None


class CredentialSource:
    """Loads credentials from one source, again if the server refuses them.

    The source is ``kubeconfig``; without it ``$KUBECONFIG``, then the pod's service account, then
    ``~/.kube/config``. ``context`` selects a context of the kubeconfig; default: the current one.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._kubeconfig = _kubeconfig_path(kubeconfig)
        self._context = context
        self._lock = asyncio.Lock()
        self._loaded: Credentials | None = None

    async def current(self) -> Credentials:
        """Return the current credentials; the first call loads them."""
        return self._loaded or await self.after(None)

    async def after(self, refused: Credentials | None) -> Credentials:
        """Return credentials newer than the ``refused`` ones.

        Raises:
            CredentialsError: the source cannot be read or is incomplete.
        """
        async with self._lock:  # concurrent callers cause one load
            if self._loaded is None or self._loaded is refused:
                self._loaded = await self._load()
            return self._loaded

    def namespace(self) -> str:
        """Return the namespace of the context, or of the pod, or else ``default``."""
        if self._kubeconfig is None:
            path = SERVICE_ACCOUNT / "namespace"
            return path.read_text().strip() if path.is_file() else "default"
        from kubernetes.aio import config

        contexts, current = config.list_kube_config_contexts(str(self._kubeconfig))  # type: ignore[no-untyped-call]  # untyped upstream
        context = next((c for c in contexts if c["name"] == self._context), current)
        return context["context"].get("namespace") or "default"

    async def _load(self) -> Credentials:
        place = self._kubeconfig or "the pod's service account"
        try:
            if self._kubeconfig is None:
                return _of_service_account(os.environ, SERVICE_ACCOUNT)
            # $KUBECONFIG may be a list of files, which the package merges and checks.
            if os.pathsep in str(self._kubeconfig):
                return await _of_any_kubeconfig(str(self._kubeconfig), self._context)
            if not self._kubeconfig.is_file():
                raise CredentialsError("no such file")
            plain = _of_plain_kubeconfig(self._kubeconfig, self._context)
            return plain or await _of_any_kubeconfig(str(self._kubeconfig), self._context)
        except Exception as error:  # the loaders raise half a dozen unrelated types
            raise CredentialsError(
                f"cannot use {place} as credentials: {error or type(error).__name__}; "
                "check the file, or point KUBECONFIG at another"
            ) from error


def _kubeconfig_path(explicit: Path | None) -> Path | None:
    """Return the kubeconfig to read, or None for the in-cluster service account."""
    if explicit is not None:
        return explicit
    if from_environment := os.environ.get("KUBECONFIG"):
        return Path(from_environment)
    return None if "KUBERNETES_SERVICE_HOST" in os.environ else Path.home() / ".kube" / "config"


# --- the pod's service account ------------------------------------------------------------------


class _TokenFile:
    """The token in a file that the kubelet renews."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = 0.0
        self._token = ""

    def authorization(self) -> str:
        """Return the Authorization header's value; the token is at most a minute old.

        Raises:
            CredentialsError: the file cannot be read or is empty.
        """
        now = time.monotonic()
        if not self._token or now - self._read_at >= _TOKEN_SECONDS:
            try:
                self._token = self._path.read_text().strip()
            except OSError as error:
                raise CredentialsError(f"cannot read the token file: {error}") from error
            if not self._token:
                raise CredentialsError(f"the token file {self._path} is empty")
            self._read_at = now
        return f"Bearer {self._token}"


def _of_service_account(environ: Mapping[str, str], folder: Path) -> Credentials:
    host, port = (environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port:
        raise CredentialsError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token, ca = _TokenFile(folder / "token"), folder / "ca.crt"
    token.authorization()
    if not ca.is_file():
        raise CredentialsError(f"there is no {ca}")
    return Credentials(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=ssl.create_default_context(cafile=str(ca)),
        authorization=token.authorization,
    )


# --- kubeconfigs --------------------------------------------------------------------------------


def _of_plain_kubeconfig(path: Path, context: str | None) -> Credentials | None:
    """Return the credentials of a kubeconfig, or None if only the package can load them."""
    config = yaml.safe_load(path.read_bytes())
    if not isinstance(config, dict):
        return None
    context_entry = _entry(config, "context", context or config.get("current-context"))
    cluster = _entry(config, "cluster", context_entry.get("cluster"))
    user = _entry(config, "user", context_entry["user"]) if context_entry.get("user") else {}
    is_plain = user.keys() <= _USER_FIELDS and cluster.keys() <= _CLUSTER_FIELDS
    if (
        not is_plain
        or {"token", "tokenFile"} <= user.keys()
        or not isinstance(cluster.get("server"), str)
    ):
        return None
    server, folder = cluster["server"].rstrip("/"), path.absolute().parent
    token = user.get("token")
    if "tokenFile" in user:
        token = (folder / user["tokenFile"]).read_text()
    header = f"Bearer {token.strip()}" if token and token.strip() else None
    return Credentials(
        server=server,
        tls=_tls(cluster, user, folder) if server.startswith("https://") else False,
        authorization=lambda: header,
        server_hostname=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
    )


def _entry(config: dict[str, Any], kind: str, name: object) -> dict[str, Any]:
    """Return the entry ``name`` of the list of ``kind``; empty without such an entry."""
    for entry in config.get(f"{kind}s") or ():
        if entry.get("name") == name:
            section = entry.get(kind)
            return section if isinstance(section, dict) else {}
    return {}


def _path(section: Mapping[str, Any], field: str, folder: Path) -> str | None:
    """Return the path in ``field``, relative to the kubeconfig; inline data takes precedence."""
    path = section.get(field)
    return str(folder / path) if path and f"{field}-data" not in section else None


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    data = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(
        cafile=_path(cluster, "certificate-authority", folder),
        cadata=base64.b64decode(data).decode() if data else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with tempfile.TemporaryDirectory() as scratch:  # ssl reads certificate and key only from files
        files: list[str | None] = []
        for field in ("client-certificate", "client-key"):
            files.append(_path(user, field, folder))
            if inline := user.get(f"{field}-data"):
                file = Path(scratch, field)
                file.touch(0o600)
                file.write_bytes(base64.b64decode(inline))
                files[-1] = str(file)
        if files[0] is not None:
            context.load_cert_chain(files[0], files[1])
    return context


async def _of_any_kubeconfig(paths: str, context: str | None) -> Credentials:
    from kubernetes.aio import config
    from kubernetes.aio.client import Configuration

    configuration = Configuration()
    await config.load_kube_config(  # type: ignore[no-untyped-call]  # untyped upstream
        config_file=paths,
        context=context,
        client_configuration=configuration,
        persist_config=False,
    )
    server = configuration.host.rstrip("/")
    tls: ssl.SSLContext | bool = False
    if server.startswith("https://"):
        tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if not configuration.verify_ssl:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    token: str | None = configuration.api_key.get("BearerToken")
    header = token.strip() if token else None
    return Credentials(
        server=server,
        tls=tls,
        authorization=lambda: header,
        server_hostname=configuration.tls_server_name,
        proxy=configuration.proxy,
    )
