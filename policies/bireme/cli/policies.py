"""``bireme policies``: all policies, a line each, and the description of single ones."""

import argparse
import sys
from pathlib import Path

from bireme import registry
from bireme.cli.arguments import naming
from bireme.onnx.cards import card_text
from bireme.onnx.checkpoints import read_card
from bireme.policy_names import checkpoint_folder
from bireme.rl.components import parts_of
from bireme.tables import align_columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(name=None)
    show = parser.add_subparsers(metavar="[show NAME]").add_parser(
        "show",
        help="describe one policy, with the card of a learned one",
        description="Describe a policy, with the card of the checkpoint if it is learned.",
    )
    show.add_argument("name", metavar="NAME", help="a name from the list, or checkpoint:FOLDER")


def run(options: argparse.Namespace) -> int:
    if options.name is None:
        rows = [
            [kind, name, _label(kind, name, summary)] for kind, name, summary in registry.describe()
        ]
        text = "\n".join(align_columns(rows, flush_left=3)) + "\n"
    else:
        with naming("NAME"):
            text = _card_text(options.name)
    sys.stdout.write(text)
    return 0


def _label(kind: str, name: str, summary: str) -> str:
    """Return ``summary``, with a prefix if the benchmark found a tuned rule to be better."""
    folder = checkpoint_folder(name)
    if folder is None:
        return summary
    card, _ = read_card(folder)
    # A rule may have the name of a checkpoint that decides other parts.
    is_research = card.is_research and kind in parts_of(card)
    return f"research: {summary}" if is_research else summary


def _card_text(name: str) -> str:
    is_folder = name.startswith(registry.CHECKPOINT)
    folder = Path(name.removeprefix(registry.CHECKPOINT)) if is_folder else checkpoint_folder(name)
    descriptions = [] if is_folder else registry.explain(name)
    texts = [f"{kind} {name}\n\n{description}\n" for kind, description in descriptions]
    if folder is not None:
        texts.append(card_text(*read_card(folder)))
    return "\n".join(texts)
