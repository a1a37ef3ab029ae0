"""Inference with ONNX Runtime on one thread, with a time limit for each call.

ONNX Runtime checks a flag between two operators. One watchdog thread per process sets it for calls
over their limit. Any thread may use a session.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bireme.core.errors import installing
from bireme.core.resources import FloatArray
from bireme.onnx.errors import AnswerError, CheckpointError

if TYPE_CHECKING:
    import onnxruntime

Array: TypeAlias = NDArray[np.float32]
"""Input of a network."""
Shape: TypeAlias = tuple[int | str, ...]
"""Sizes of axes: a number, or the name of an axis of variable size."""
Ask: TypeAlias = Callable[[Mapping[str, Array], int], FloatArray]
"""Asks one network several times within one time limit. The arguments are arrays by name of input
and the number of rows; the result is finite float64 of shape (rows,). Raises AnswerError for an
invalid answer, and when all questions together exceed the limit."""

_TICK_SECONDS: Final = 0.02
"""The time by which a call may exceed its limit."""
# ONNX Runtime's log level: its faults are raised, so it need not print them.
_FATAL: Final = 4


class Watchdog:
    """Stops calls over their limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, tuple[float, onnxruntime.RunOptions]] = {}
        self._has_calls = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def limit(self, options: "onnxruntime.RunOptions", seconds: float) -> Iterator[None]:
        """Context manager: stop the call with ``options`` inside it after ``seconds``."""
        # The id is unique among current calls: the options live as long as their call.
        key = id(options)
        self._calls[key] = (time.monotonic() + seconds, options)
        self._has_calls.set()
        if self._thread is None or not self._thread.is_alive():
            self._start()
        try:
            yield
        finally:
            del self._calls[key]

    def _start(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # a fork leaves threads behind
                self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while self._has_calls.wait():
            now = time.monotonic()
            # A copy, as calls begin and end meanwhile.
            for until, options in list(self._calls.values()):
                if now >= until:
                    options.terminate = True
            time.sleep(_TICK_SECONDS)
            # Clear before the check: a call that begins between the two lines sets it again.
            self._has_calls.clear()
            if self._calls:
                self._has_calls.set()


_watchdog = Watchdog()


class Session:
    """A network: arrays in, one number per row out.

    Args:
        model: The ONNX file, which has been inspected (:mod:`bireme.onnx.graphs`).
        inputs: Shapes by name, from its encoder.
        output: The name of the answer and the name of its only axis.
        where: The beginning of error texts.

    Raises:
        CheckpointError: ONNX Runtime is not installed, or refuses the file.
    """

    def __init__(
        self, model: bytes, inputs: Mapping[str, Shape], output: tuple[str, str], where: str
    ) -> None:
        self._inputs, self._where = dict(inputs), where
        self._output, self._axis = output
        self._session = _make_session(model, where)

    def within(self, limit_seconds: float) -> Ask:
        """Return a function that asks the network until ``limit_seconds`` from now.

        All its calls share the limit; a later answer raises AnswerError.
        """
        until = time.monotonic() + limit_seconds

        def ask(arrays: Mapping[str, Array], rows: int) -> FloatArray:
            remaining_seconds = until - time.monotonic()
            if remaining_seconds <= 0:
                raise AnswerError(f"{self._where}: answers took longer than {limit_seconds:g} s")
            return self.answer(arrays, rows, remaining_seconds)

        return ask

    def answer(self, arrays: Mapping[str, Array], rows: int, limit_seconds: float) -> FloatArray:
        """Return the network's answer, finite float64 of shape (rows,).

        Raises:
            AnswerError: ``arrays`` do not match ``inputs``, the answer has another shape or is not
                finite, or it took longer than ``limit_seconds``.
        """
        import onnxruntime

        self._check(arrays, rows)
        options = onnxruntime.RunOptions()
        options.log_severity_level = _FATAL
        try:
            with _watchdog.limit(options, limit_seconds):
                (answer,) = self._session.run([self._output], dict(arrays), options)
        except Exception as error:
            if options.terminate:
                raise AnswerError(
                    f"{self._where} took longer than {limit_seconds:g} s for {rows} {self._axis}"
                ) from error
            raise AnswerError(f"{self._where} failed: {_first_line(error)}") from error
        if answer.shape != (rows,):
            raise AnswerError(f"{self._where} answered with shape {answer.shape}, not ({rows},)")
        is_fit = np.isfinite(answer)
        if not is_fit.all():
            unfit = rows - np.count_nonzero(is_fit)
            raise AnswerError(f"{self._where}: {unfit} of {rows} answers are not finite")
        return np.asarray(answer, dtype=np.float64)

    # ONNX Runtime does not check that axes of one name have one size.
    def _check(self, arrays: Mapping[str, Array], rows: int) -> None:
        """Raise AnswerError unless ``arrays`` have the stated names, types and shapes."""
        if arrays.keys() != self._inputs.keys():
            raise AnswerError(
                f"{self._where}: the encoder gives {sorted(arrays)}, stated are "
                f"{sorted(self._inputs)}"
            )
        sizes: dict[str | int, int] = {self._axis: rows}
        for name, shape in self._inputs.items():
            array = arrays[name]
            if array.dtype != np.float32 or array.ndim != len(shape):
                raise AnswerError(
                    f"{self._where}: input {name!r} is {array.dtype} of shape {array.shape}, "
                    f"stated is float32 of shape {shape}"
                )
            for axis, size in zip(shape, array.shape, strict=True):
                expected = axis if isinstance(axis, int) else sizes.setdefault(axis, size)
                if size != expected:
                    raise AnswerError(
                        f"{self._where}: axis {axis!r} of input {name!r} is {size}, not {expected}"
                    )


def _make_session(model: bytes, where: str) -> "onnxruntime.InferenceSession":
    # From 1.29 on it sends names and hashes of networks to its vendor, unless this is set before
    # its import.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise CheckpointError(
            f"{where}: ONNX Runtime cannot be imported ({error}); {installing('serve')}"
        ) from error
    options = onnxruntime.SessionOptions()
    # One thread sums in one order: a replayed cycle must decide the same.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # sizes vary, and an arena never shrinks
    options.enable_mem_pattern = False
    options.log_severity_level = _FATAL
    options.use_deterministic_compute = True
    try:
        return onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception as error:
        raise CheckpointError(
            f"{where}: ONNX Runtime refuses it: {_first_line(error)}; export the checkpoint again"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
