"""GPUs in amounts that an object of Kubernetes states, such as a node's or a queue's."""

from bireme.cli.arguments import Json
from bireme.core.accelerators import DEFAULT, GPU_UNITS, Accelerators, in_units
from bireme.kube.quantities import QuantityError, parse_quantity


def gpus_in(stated: Json, accelerators: Accelerators = DEFAULT) -> int | float | None:
    """Return the number of accelerators of any kind in ``stated``; None if it names none.

    Amounts in GPU units take precedence: only the operator has the table of units.
    """
    amounts: dict[str, int] = {}
    for name, value in stated.items():
        if name == GPU_UNITS or accelerators.is_accelerator(name):
            try:
                amounts[name] = parse_quantity(name, value)
            except QuantityError:
                continue
    if GPU_UNITS in amounts:
        return in_units(amounts[GPU_UNITS])
    return accelerators.units(amounts) if amounts else None
