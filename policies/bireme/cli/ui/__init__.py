"""``bireme ui``: a page in the browser on a cluster, or on the record of an operator.

It is served on loopback and reads with the caller's own credentials; nothing is installed in the
cluster. The address holds a token that works once.
"""

import argparse
import asyncio
import contextlib
import secrets
import socket
import sys
import webbrowser
from pathlib import Path

from bireme.cli import cluster as common
from bireme.cli import leader
from bireme.cli.arguments import UsageError, add_policy_class, naming, whole
from bireme.cli.cluster import ClusterReader, ConsoleError, ask

_HIGHEST_PORT = 65_535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "record",
        nargs="*",
        type=Path,
        metavar="RECORD",
        help="show an operator's record instead of a cluster: files record-*.jsonl, plain or "
        "gzipped, or their folder",
    )
    add(
        "--checkpoints",
        default="",
        metavar="FOLDER",
        help="folder of the checkpoints that decided during the record",
    )
    add_policy_class(parser)
    add("--port", type=_port, default=0, metavar="N", help="port on loopback; default: a free one")
    add("--no-browser", action="store_true", help="only print the address")
    leader.add_leader(parser)
    common.add_target(parser)


def run(options: argparse.Namespace) -> int:
    if options.record:
        return _show_record(options)
    return ask(options, lambda reader: _show_cluster(options, reader))


def _port(text: str) -> int:
    number = whole(text, minimum=0)
    if number > _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port; the highest is {_HIGHEST_PORT}")
    return number


def _show_record(options: argparse.Namespace) -> int:
    from bireme.cli.ui import recorded

    with naming("RECORD"):
        source = recorded.read(options.record, options.checkpoints, options.policy_classes)
        source.view(len(source.times) - 1)  # raises if the policy cannot be loaded
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(options, source))
    return 0


async def _show_cluster(options: argparse.Namespace, reader: ClusterReader) -> int:
    try:
        from bireme.cli.ui.live import Live
    except ImportError as error:
        raise _not_installed(error) from error

    context = f" by context {options.context}" if options.context else ""
    source = Live(reader, options, f"cluster{context}, namespace {reader.namespace}")
    try:
        await source.start()
        await _serve(options, source)
    finally:
        await source.close()
    return 0


async def _serve(options: argparse.Namespace, source: object) -> None:
    try:
        import uvicorn

        from bireme.cli.ui.server import Board, Guard
    except ImportError as error:
        raise _not_installed(error) from error

    listening = listen(options.port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(32)
    app = Guard(Board(source).app(), token, port)  # type: ignore[arg-type]
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, lifespan="off"
    )
    address = f"http://127.0.0.1:{port}/open?token={token}"
    sys.stdout.write(f"{address}\nIt works once, in one browser. Ctrl-C ends it.\n")
    sys.stdout.flush()
    if not options.no_browser and sys.stdout.isatty():
        await asyncio.to_thread(webbrowser.open, address)
    await uvicorn.Server(config).serve(sockets=[listening])


def listen(port: int) -> socket.socket:
    """Return a socket that browsers can connect to at once; UsageError where the port is taken."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen()  # before the address is printed: a browser may be faster than the server
    except OSError as error:
        listening.close()
        raise UsageError(
            f"argument --port: cannot listen on {port}: {error.strerror}; leave it out for a free"
            " one"
        ) from error
    return listening


def _not_installed(error: ImportError) -> ConsoleError:
    return ConsoleError(f"{error.name} is not installed; install the board: pip install bireme[ui]")
