"""Objects of a cluster, read with the caller's own credentials.

A refusal names the missing permission, because people who ask why their job waits are seldom
administrators.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import yaml

from bireme.cli.arguments import Json, UsageError
from bireme.core.errors import BiremeError
from bireme.kube import names, quantities
from bireme.kube.client import ApiClient, ApiError
from bireme.kube.conditions import cleaned
from bireme.kube.credentials import CredentialsError, CredentialSource


class ConsoleError(BiremeError):
    """The cluster cannot be asked, or has no such object; the message says what to do."""


T = TypeVar("T")

_PAGE: Final = "500"
_ANSWER_SECONDS: Final = 30.0
_SHORT_WATCH_SECONDS: Final = 1.0
_FORM: Final = "cli.bireme.dev/v1"


class ClusterReader:
    """An open connection to a cluster; ``namespace`` is the default namespace of the questions."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def get(self, plural: str, name: str, namespace: str | None = None) -> Json:
        """Return an object of Bireme's; raise ConsoleError if there is none."""
        try:
            body = await self.client.get(names.path(plural, namespace, name))
        except ApiError as error:
            if error.is_not_found:
                where = f" in namespace {namespace}" if namespace else ""
                raise ConsoleError(
                    f"no {plural}/{name}{where}; see: kubectl get {plural}.{names.GROUP}"
                    + (" -A" if namespace else "")
                ) from error
            raise refusal(error, f"get {plural}") from error
        manifest: Json = msgspec.json.decode(body)
        return manifest

    async def objects(self, path: str, **selectors: str) -> list[Json]:
        """Return all objects of a collection; ``selectors`` are such as ``labelSelector``."""
        return (await self.list_with_version(path, **selectors))[0]

    async def list_with_version(self, path: str, **selectors: str) -> tuple[list[Json], str]:
        """Return :meth:`objects`, and the version from which :meth:`changes` continues."""
        objects: list[Json] = []
        # In pages: one answer with thousands of objects is a burden for the API server.
        params = {"limit": _PAGE, **selectors}
        while True:
            try:
                page: Json = msgspec.json.decode(await self.client.get(path, params=params))
            except ApiError as error:
                raise refusal(error, f"list {path.rpartition('/')[2]}") from error
            objects += page.get("items") or ()
            about = page.get("metadata") or {}
            if not about.get("continue"):
                return objects, str(about.get("resourceVersion", ""))
            params["continue"] = about["continue"]

    async def changes(
        self, path: str, version: str, **selectors: str
    ) -> AsyncIterator[tuple[str, Json]]:
        """Yield the changes of a collection since ``version``, without end: their type and object.

        Types are ADDED, MODIFIED and DELETED, as seen by the ``selectors``.
        """
        params = {"watch": "true", "allowWatchBookmarks": "true", **selectors}
        resource = path.rpartition("/")[2]
        while True:  # the server ends every watch after some minutes
            began = time.monotonic()
            stream = self.client.stream(path, {**params, "resourceVersion": version})
            try:
                async with aclosing(stream):
                    async for line in stream:
                        event: Json = msgspec.json.decode(line)
                        manifest = event["object"]
                        if event["type"] == "ERROR":
                            message = cleaned(str(manifest.get("message")))
                            raise ConsoleError(
                                f"the watch of {resource} ended: {message}; try again"
                            )
                        version = manifest["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            yield event["type"], manifest
            except ApiError as error:
                raise refusal(error, f"watch {resource}") from error
            if time.monotonic() - began < _SHORT_WATCH_SECONDS:
                await asyncio.sleep(_SHORT_WATCH_SECONDS)

    async def objects_if_allowed(self, path: str, **selectors: str) -> list[Json] | None:
        """Return :meth:`objects`, or None if the caller may not read them."""
        try:
            return await self.objects(path, **selectors)
        except ConsoleError as error:
            cause = error.__cause__
            if isinstance(cause, ApiError) and cause.is_forbidden:
                return None
            raise


def refusal(error: ApiError, what: str) -> ConsoleError:
    """Return ``error`` as a message for a person."""
    if error.is_forbidden:
        return ConsoleError(f"you may not {what}: {error.message}; ask for a role that may")
    if error.is_not_found and error.message.startswith("namespaces "):
        return ConsoleError(f"cannot {what}: {error.message}; create it, or name another by -n")
    if error.is_not_found:
        return ConsoleError(
            f"cannot {what}: the cluster does not know Bireme; install its chart first"
        )
    if error.reason == "Timeout":
        return ConsoleError(f"cannot {what}: no answer in time; allow more with --request-timeout")
    if error.status == 401:
        return ConsoleError(f"cannot {what}: the API server refuses the credentials; log in again")
    return ConsoleError(f"cannot {what}: {error}")


def ask(options: argparse.Namespace, question: Callable[[ClusterReader], Awaitable[T]]) -> T:
    """Return the answer to ``question`` about the cluster that ``options`` choose."""

    if options.groups and not options.user:
        raise UsageError("argument --as-group: needs a user too; name one with --as")

    async def answer() -> T:
        source = CredentialSource(options.kubeconfig, options.context)
        try:
            # Before the first request, whose error would say less about the credentials.
            await source.current()
        except CredentialsError as error:
            raise ConsoleError(str(error)) from error
        client = ApiClient(
            source,
            user=options.user,
            groups=options.groups,
            timeout_seconds=options.request_timeout,
        )
        try:
            namespace = getattr(options, "namespace", None) or source.namespace()
            return await question(ClusterReader(client, namespace))
        finally:
            await client.close()

    return asyncio.run(answer())


# --- arguments that all questions to a cluster share, named as kubectl names them -------------


def add_target(
    parser: argparse.ArgumentParser, *, namespaced: bool = True, all_namespaces: bool = False
) -> None:
    """Add the arguments for the cluster, the asking user and the time limit of an answer."""
    add = parser.add_argument
    if all_namespaces:
        add(
            "-A",
            "--all-namespaces",
            action="store_true",
            help="all namespaces; an error if you may not read them; overrides -n",
        )
    if namespaced:
        add(
            "-n",
            "--namespace",
            metavar="NAME",
            help="default: the namespace of the context, or of the pod",
        )
    add(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="default: as for kubectl, or the pod's account",
    )
    add("--context", metavar="NAME", help="a context of the kubeconfig; default: the current one")
    add("--as", dest="user", type=_identity, metavar="USER", help="a user to impersonate")
    add(
        "--as-group",
        dest="groups",
        type=_identity,
        action="append",
        default=[],
        metavar="GROUP",
        help="a group of that user; repeatable",
    )
    add(
        "--request-timeout",
        type=_request_timeout,
        default=_ANSWER_SECONDS,
        metavar="TIME",
        help="time limit of one request, such as 5s; 0: none; default: 30s",
    )


def _identity(text: str) -> str:
    # It becomes the value of a header, where a line break would begin another one.
    if not (text and text.isascii() and text.isprintable()):
        raise argparse.ArgumentTypeError(f"{text!a} is no name; write printable ASCII characters")
    return text


def _request_timeout(text: str) -> float:
    if text.isascii() and text.isdigit():  # seconds, as to kubectl
        return float(text)
    return duration(text)


def add_output(parser: argparse.ArgumentParser, *, wide: bool = False) -> None:
    """Add the argument that chooses the output format."""
    formats = ("text", *(["wide"] if wide else []), "json", "yaml")
    parser.add_argument("-o", "--output", choices=formats, default="text", help="default: text")


def with_version(kind: str, data: Json) -> Json:
    """Return ``data`` with the version and kind of its format, for programs that read it.

    A version may gain fields. A field that goes, or changes its meaning, makes the next version.
    """
    return {"apiVersion": _FORM, "kind": kind, **data}


def write(output: str, data: Json, text: str) -> None:
    """Write ``data`` as JSON or YAML, or else ``text``, to standard output."""
    if output == "json":
        text = json.dumps(data, indent=2) + "\n"
    elif output == "yaml":
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    sys.stdout.write(text)


def duration(text: str) -> float:
    """Return the seconds of an argument such as ``10m``."""
    try:
        return quantities.parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
