"""Constants of an ONNX file: the single numbers in it, read and replaced by name.

So a small formula exported with its numbers can get other numbers without the exporting program.
"""

from collections.abc import Mapping

import numpy as np

from bireme.core.errors import installing
from bireme.onnx.errors import CheckpointError


def read_constants(model: bytes, where: str) -> dict[str, float]:
    """Return all float constants of rank 0 in ``model``, by name.

    Raises:
        CheckpointError: the model is no ONNX file; the text begins with ``where``.
    """
    helper, parsed = _parse(model, where)
    return {
        tensor.name: float(helper.to_array(tensor))
        for tensor in parsed.graph.initializer
        if not tensor.dims and tensor.data_type == tensor.FLOAT
    }


def with_constants(model: bytes, values: Mapping[str, float], where: str) -> bytes:
    """Return ``model`` with ``values`` in place of its constants of those names.

    Raises:
        CheckpointError: the model has no such constant, or is no ONNX file.
    """
    names = read_constants(model, where)
    if missing := sorted(values.keys() - names):
        raise CheckpointError(
            f"{where}: no constant is called {missing[0]!r}, there are {', '.join(sorted(names))}; "
            "name the file that was meant"
        )
    helper, parsed = _parse(model, where)
    for tensor in parsed.graph.initializer:
        if tensor.name in values:
            value = np.array(values[tensor.name], dtype=np.float32)
            tensor.CopyFrom(helper.from_array(value, tensor.name))
    return bytes(parsed.SerializeToString(deterministic=True))


def _parse(model: bytes, where: str):  # type: ignore[no-untyped-def]  # onnx comes with an extra
    try:
        import onnx
        import onnx.numpy_helper
    except ImportError as error:
        raise CheckpointError(f"{where}: {error}; {installing('serve')}") from error
    try:
        return onnx.numpy_helper, onnx.ModelProto.FromString(model)
    except Exception as error:
        raise CheckpointError(f"{where}: it is no ONNX file ({error}); copy it again") from error
