"""``bireme policies``: the policies that come with Bireme, a line each, or one of them explained.

A name is that of a rule or a learned policy, or else of a SchedulingPolicy of the cluster. A
SchedulingPolicy with the name of a rule is written ``schedulingpolicy/NAME``.
"""

import argparse
from pathlib import Path
from typing import Final

from bireme import registry
from bireme.cli import cluster as common
from bireme.cli import policy_state
from bireme.cli.arguments import Json, naming
from bireme.cli.cluster import ConsoleError, ask
from bireme.core.errors import nearest
from bireme.kube import names
from bireme.onnx.cards import card_text
from bireme.onnx.checkpoints import read_card
from bireme.policy_names import checkpoint_folder, lab_remedy
from bireme.rl.components import parts_of
from bireme.tables import align_columns

_KIND: Final = "SchedulingPolicy"
_PLURAL: Final = names.PLURALS[_KIND]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "policy",
        nargs="?",
        metavar="NAME",
        help="a name from the list, checkpoint:FOLDER, or a SchedulingPolicy of the cluster; "
        "schedulingpolicy/NAME is always the latter; default: list all",
    )
    common.add_target(parser, namespaced=False)
    common.add_output(parser)


def run(options: argparse.Namespace) -> int:
    if options.policy is None:
        data, text = _list()
    else:
        kind, slash, name = options.policy.rpartition("/")
        is_object = bool(slash) and kind.lower() in (_KIND.lower(), _PLURAL)
        if is_object or not _is_shipped(options.policy):
            data, text = _of_cluster(options, name if is_object else options.policy)
        else:
            with naming("NAME"):
                data, text = _explain(options.policy)
    common.write(options.output, data, text)
    return 0


# --- policies that come with Bireme -------------------------------------------------------------


def _list() -> tuple[Json, str]:
    rows = [
        [kind, name, _label(kind, name, summary)] for kind, name, summary in registry.describe()
    ]
    items = [{"part": kind, "name": name, "summary": summary} for kind, name, summary in rows]
    data = common.with_version("PolicyList", {"items": items})
    return data, "\n".join(align_columns(rows, flush_left=3)) + "\n"


def _label(kind: str, name: str, summary: str) -> str:
    """Return ``summary``, with a prefix if the benchmark found a tuned rule to be better."""
    folder = checkpoint_folder(name)
    if folder is None:
        return summary
    card, _ = read_card(folder)
    # A rule may have the name of a checkpoint that decides other parts.
    is_research = card.is_research and kind in parts_of(card)
    return f"research: {summary}" if is_research else summary


def _is_shipped(name: str) -> bool:
    return name.startswith(registry.CHECKPOINT) or name in _shipped_names()


def _shipped_names() -> set[str]:
    return {name for _, name, _ in registry.describe()}


def _explain(name: str) -> tuple[Json, str]:
    is_folder = name.startswith(registry.CHECKPOINT)
    folder = Path(name.removeprefix(registry.CHECKPOINT)) if is_folder else checkpoint_folder(name)
    descriptions = [] if is_folder else list(registry.explain(name))
    texts = [f"{kind} {name}\n\n{description}\n" for kind, description in descriptions]
    card = None if folder is None else card_text(*read_card(folder))
    data: Json = {
        "name": name,
        "parts": [{"part": kind, "description": text} for kind, text in descriptions],
        "card": card,
    }
    if card is not None:
        texts.append(card)
    return common.with_version("PolicyDescription", data), "\n".join(texts)


# --- SchedulingPolicies -------------------------------------------------------------------------


def _of_cluster(options: argparse.Namespace, name: str) -> tuple[Json, str]:
    try:
        policy = ask(options, lambda reader: reader.get(_PLURAL, name))
    except ConsoleError as error:
        hint = nearest(name, sorted(_shipped_names()))
        raise ConsoleError(
            f"no policy that comes with Bireme is called {name!r} ({hint}{lab_remedy()}); as a "
            f"SchedulingPolicy of the cluster: {error}"
        ) from error
    data = {"name": name, "spec": policy["spec"], "status": policy.get("status") or {}}
    return common.with_version("PolicyExplanation", data), policy_state.text_of(policy)
