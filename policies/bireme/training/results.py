"""What a checkpoint reached, into its card, with the command that measures it again.

The sha256 of the card, and so the name of the checkpoint in records, is another afterwards.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bireme.core.errors import SettingError
from bireme.rl.cards import CARD_FILE, Result, encode
from bireme.rl.checkpoints import read_card
from bireme.training.judgement import Judgement


def into_card(folder: Path, found: Sequence[Judgement], command: str) -> None:
    """Put ``found`` in place of older results of the same settings.

    Raises:
        CheckpointError: there is no card in ``folder``.
        SettingError: ``found`` is about another checkpoint.
    """
    card, digest = read_card(folder)
    for each in found:
        if each.sha256 != digest:
            raise SettingError(
                f"setting {each.setting!r} was measured of the checkpoint with sha256 "
                f"{each.sha256}, {str(folder)!r} has {digest}; measure it again"
            )
    measured = {each.setting for each in found}
    kept = [result for result in card.results if result.setting not in measured]
    results = (*kept, *(result for each in found for result in _results(each, command)))
    (folder / CARD_FILE).write_bytes(encode(msgspec.structs.replace(card, results=results)))


def _results(found: Judgement, command: str) -> Iterator[Result]:
    means, rival = found.means(), found.best_rival
    beside = means[rival] if rival is not None else {}
    for metric, own in means[found.checkpoint].items():
        if rival is None or metric in beside:
            yield Result(
                setting=found.setting,
                metric=metric,
                value=own.mean,
                interval=(_or(own.low, own.mean), _or(own.high, own.mean)),
                rival=rival or "",
                rival_value=beside[metric].mean if rival is not None else own.mean,
                command=command,
            )


def _or(bound: float | None, mean: float) -> float:
    return mean if bound is None else bound
