"""A checkpoint's card as text for a person."""

from collections.abc import Iterator

from bireme.rl.cards import Card, PartCard, Result


def told(card: Card, sha256: str) -> str:
    """What the policy is, what it was trained on, how it did, and which files it consists of."""
    lines = [f"{card.name}: {card.summary}", ""]
    lines += [f"{what:<12}{text}" for what, text in _facts(card, sha256) if text]
    if card.results:
        lines += ["", "Results, with 95 % intervals:", *map(_result, card.results)]
        commands = dict.fromkeys(result.command for result in card.results)
        lines += ["Measured by:", *(f"  {command}" for command in commands)]
    for name, part in card.parts.by_name().items():
        lines += ["", *_part(name, part)]
    return "\n".join(lines) + "\n"


def _facts(card: Card, sha256: str) -> Iterator[tuple[str, str]]:
    yield "paper", card.paper
    yield "trained on", card.data
    yield "training", ", ".join(f"{name} {value:,.10g}" for name, value in card.training.items())
    yield "seeds", ", ".join(map(str, card.seeds))
    yield "command", card.command
    yield "made", card.made
    yield "sha256", sha256


def _result(result: Result) -> str:
    low, high = result.interval
    rival = f"; {result.rival} {result.rival_value:.4g}" if result.rival else ""
    return f"  {result.setting}, {result.metric}: {result.value:.4g} [{low:.4g}, {high:.4g}]{rival}"


def _part(name: str, part: PartCard) -> Iterator[str]:
    claim = ", its score is also the claim" if part.stops_others else ""
    yield f"{name}: {part.file}, {part.bytes:,} bytes, opset {part.opset}{claim}"
    yield f"  encoder {part.encoder}"
    for arrow, shapes in (("in", part.inputs), ("out", part.outputs)):
        for array, shape in shapes.items():
            yield f"  {arrow:<4}{array} ({', '.join(map(str, shape))})"
    yield f"  sha256 {part.sha256}"
