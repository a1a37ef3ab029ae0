"""Arguments that every question to a cluster shares, in kubectl's own words."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

import yaml

from bireme.console.reading import Json, Target
from bireme.kube import durations

FORMATS: Final = ("text", "wide", "json", "yaml")


def add_target(parser: argparse.ArgumentParser, *, namespaced: bool = True) -> None:
    """Which cluster, and which namespace of it."""
    add = parser.add_argument
    if namespaced:
        add("-n", "--namespace", metavar="NAME", help="default: that of the context, or of the pod")
    add("--kubeconfig", type=Path, metavar="FILE", help="default: as kubectl, or the pod's account")
    add("--context", metavar="NAME", help="a context of the kubeconfig; default: the current one")


def add_output(parser: argparse.ArgumentParser, *, wide: bool = False) -> None:
    """How the answer is written."""
    formats = FORMATS if wide else tuple(name for name in FORMATS if name != "wide")
    parser.add_argument("-o", "--output", choices=formats, default="text", help="default: text")


def target(options: argparse.Namespace) -> Target:
    """What :func:`add_target` has read."""
    return Target(options.kubeconfig, options.context, getattr(options, "namespace", None))


def write(output: str, data: Json | list[Json], text: str) -> None:
    """``data`` as JSON or YAML, or else ``text``, to standard output."""
    if output == "json":
        text = json.dumps(data, indent=2) + "\n"
    elif output == "yaml":
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    sys.stdout.write(text)


def duration(text: str) -> float:
    """Seconds of an argument such as ``10m``."""
    try:
        return durations.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
