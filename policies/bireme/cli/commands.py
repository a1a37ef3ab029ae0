"""The commands of ``bireme`` by group, those of other installed packages, and names of the past.

A package adds a group of commands by an entry point of the group ``bireme.commands``: its name is
the heading in the help, its object a mapping of names to :class:`Command`. The lab registers so. A
name of :data:`GROUPS` goes before one of a package, which may only add verbs to it.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from bireme.cli.arguments import UsageError
from bireme.core.errors import nearest

ENTRY_POINTS: Final = "bireme.commands"


class Command(NamedTuple):
    """A command: its line in the help, and its module or its verbs."""

    purpose: str
    module: str = ""
    """The module with ``add_arguments`` and ``run``; empty for a command with verbs."""
    verbs: Mapping[str, "Command"] = MappingProxyType({})


GROUPS: Final[Mapping[str, Mapping[str, Command]]] = {
    "jobs": {
        "submit": Command(
            "check manifests here and at the API server, send all or none, and follow the jobs",
            "bireme.cli.submit",
        ),
        "why": Command(
            "explain why a job waits or where it runs: the dominant reason first, with a remedy",
            "bireme.cli.why",
        ),
        "queue": Command(
            "list the waiting gangs of all queues, the next to start first",
            "bireme.cli.queues",
        ),
        "list": Command(
            "list the jobs and gangs of a namespace: phase, reason, queue, position, size, age",
            "bireme.cli.listing",
        ),
        "logs": Command(
            "print the logs of the replicas of a job, with task and index before each line",
            "bireme.cli.logs",
        ),
        "suspend": Command(
            "stop jobs and keep them, until they are resumed", "bireme.cli.suspension"
        ),
        "resume": Command("let suspended jobs wait and start again", "bireme.cli.suspension"),
        "cancel": Command(
            "delete jobs that have not ended, and say what each was doing", "bireme.cli.cancel"
        ),
        "scale": Command(
            "change the number of replicas of a waiting elastic job", "bireme.cli.scale"
        ),
    },
    "cluster": {
        "ui": Command(
            "open a board in the browser: capacity, queues, jobs and reasons, of a cluster or a "
            "record",
            "bireme.cli.ui",
        ),
        "usage": Command(
            "report the use and waste of devices, by queue, namespace or pool", "bireme.cli.usage"
        ),
        "doctor": Command(
            "check an installation from end to end, and list faults with remedies",
            "bireme.cli.doctor",
        ),
        "policies": Command(
            "list the policies that come with Bireme, or explain one, or a SchedulingPolicy",
            "bireme.cli.policies",
        ),
        "maintenance": Command(
            "plan and announce the maintenance of nodes",
            verbs={
                "plan": Command(
                    "show which gangs a drain of nodes would move, and where to; moves nothing",
                    "bireme.cli.maintenance_plan",
                ),
                "announce": Command(
                    "announce maintenance: only gangs that end before it may start there",
                    "bireme.cli.maintenance",
                ),
                "list": Command("list the announced maintenance", "bireme.cli.maintenance"),
                "cancel": Command("cancel announced maintenance", "bireme.cli.maintenance"),
            },
        ),
        "forecast": Command(
            "forecast the demand of node pools, or compare the models on a series",
            verbs={
                "pools": Command(
                    "forecast the demand of every NodePoolScaler, and write it into its status",
                    "bireme.cli.forecast_pools",
                ),
            },
        ),
        "migrate": Command(
            "move from Volcano or Kueue to Bireme, or from Bireme to the default scheduler",
            verbs={
                "convert": Command(
                    "convert Volcano's and Kueue's objects, with a note on every difference",
                    "bireme.cli.convert",
                ),
                "release": Command(
                    "release namespaces that enforce their queues, and pods that wait for Bireme",
                    "bireme.cli.release",
                ),
            },
        ),
    },
}
"""The commands of this package, by the heading of the help."""

LAB_PACKAGE: Final = "bireme-lab"
LAB: Final = frozenset(
    {"try", "simulate", "replay", "tune", "train", "evaluate", "forecast compare"},
)
"""Commands of :data:`LAB_PACKAGE`, which an error names where that is not installed."""

REMOVED: Final = {
    "benchmark": "use python -m bireme_lab.contest",
    "completion": "no command completes shells now",
    "convert": "use bireme migrate convert",
    "drain": "use bireme maintenance plan",
    "explain": "use bireme policies NAME",
    "forecast-pools": "use bireme forecast pools",
    "outlook": "use bireme queue --outlook, or for a record bireme queue --record RECORD",
    "release": "use bireme migrate release",
    "top": "use bireme queue --watch",
}
"""Names of the past, each with the command that does it now."""


def groups() -> Iterator[tuple[str, Mapping[str, Command]]]:
    """Yield the headings of the help with their commands, those of other packages last."""
    yield from GROUPS.items()
    known = {name for commands in GROUPS.values() for name in commands}
    for heading, commands in _installed():
        yield heading, {name: each for name, each in commands.items() if name not in known}


def find_command(name: str) -> Command:
    """Return the command ``name``; raise UsageError, with the remedy, if there is none."""
    for commands in GROUPS.values():
        if name in commands:
            command = commands[name]
            return command if not command.verbs else _with_verbs(name, command)
    if name in REMOVED:
        raise UsageError(f"bireme {name} is gone: {REMOVED[name]}")
    installed = {key: command for _, group in _installed() for key, command in group.items()}
    if name in installed:
        return installed[name]
    if name in LAB:
        raise no_lab(f"bireme {name}")
    known = {*installed, *(key for group in GROUPS.values() for key in group)}
    raise UsageError(f"no command is called {name!r}; {nearest(name, sorted(known))}")


def no_lab(name: str) -> UsageError:
    """Return the error for the command ``name`` of the lab, which is not installed."""
    return UsageError(
        f"{name} is a command of the package {LAB_PACKAGE}, which is not installed; install it: "
        f"pip install {LAB_PACKAGE}"
    )


def _with_verbs(name: str, command: Command) -> Command:
    """Return ``command`` with the verbs of other packages, and those that the lab lacks."""
    verbs = dict(command.verbs)
    for _, commands in _installed():
        if name in commands:
            verbs = {**commands[name].verbs, **verbs}
    for each in sorted(LAB):
        parent, _, verb = each.partition(" ")
        if parent == name:
            verbs.setdefault(verb, Command(f"needs the package {LAB_PACKAGE}"))
    return command._replace(verbs=verbs)


def _installed() -> Iterator[tuple[str, Mapping[str, Command]]]:
    # Imported here: the search reads the metadata of every installed package.
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        yield point.name, point.load()
