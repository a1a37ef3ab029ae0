"""Command line of the demo; ``SEED`` and ``KEEP`` in the environment are defaults of options."""

import argparse
import os
import signal
import sys
from pathlib import Path

from rich.console import Console

from testbed.controlplane.errors import ControlPlaneError
from tools.demo import embedded_cluster
from tools.demo.cluster import NAME, DemoClusterError
from tools.demo.performance import Options, perform, tell_what_next
from tools.demo.story import full_workload, small_workload
from tools.demo.workload import shortened

# Of the story's times: pods of the embedded cluster start at once.
_EMBEDDED_SHARE = 0.7


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit status: 130 after Ctrl-C, 1 after a broken promise."""
    options = _parser().parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)  # a pipe would get 80, and broken lines
    # SIGTERM is handled like Ctrl-C: what was started is stopped on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(options, console)
    except KeyboardInterrupt:
        console.print("\nstopped; nothing is left running")
        return 130
    except (ControlPlaneError, DemoClusterError, RuntimeError, ValueError) as error:
        Console(stderr=True).print(f"error: {error}", markup=False, highlight=False, soft_wrap=True)
        return 1


def _run(options: argparse.Namespace, console: Console) -> int:
    match options.command:
        case "up":
            from tools.demo import real_cluster  # needs what only Linux has

            say = lambda line: console.print(f"  {line}", highlight=False)  # noqa: E731
            tell_what_next(real_cluster.staying(options.name, 16, 4, say), console)
        case "down":
            _down(options.name)
            console.print("the cluster is gone")
        case "keep":
            from tools.demo import real_cluster

            real_cluster.keep(options.name)
        case "run":
            workload = (small_workload if options.small else full_workload)(options.seed)
            if not options.real:
                workload = shortened(workload, _EMBEDDED_SHARE)
            choices = Options(
                options.seed,
                options.real,
                options.keep,
                options.name,
                options.output,
                options.film,
            )
            return perform(workload, choices, console)
    return 0


def _down(name: str) -> None:
    if embedded_cluster.folder_of(name).exists():
        embedded_cluster.down(name)
        return
    from tools.demo import real_cluster

    real_cluster.down(name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="the whole demo")
    run.add_argument("--seed", default=os.environ.get("SEED") or "7", type=_seed)
    run.add_argument("--real", action="store_true", help="on a real control plane")
    keeps = os.environ.get("KEEP", "") not in ("", "0")
    run.add_argument("--keep", action="store_true", default=keeps, help="leave the cluster up")
    run.add_argument("--small", action="store_true", help="17 jobs on 4 nodes, for tests")
    run.add_argument("--output", type=Path, default=Path(), help="folder of report and picture")
    run.add_argument("--film", type=Path, help="write a moving picture of the live view, as .webp")
    up = commands.add_parser("up", help="the real cluster without jobs, until `down`")
    down = commands.add_parser("down", help="stop what `up` or --keep left running")
    keep = commands.add_parser("keep", help="run Bireme on the cluster of `up`, which starts this")
    for command in (run, up, down, keep):
        command.add_argument("--name", default=NAME, help="of the cluster that stays")
    return parser


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"SEED is {text!r}; give a whole number, such as SEED=7"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
