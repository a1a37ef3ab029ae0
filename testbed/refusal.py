"""The refusal of a request by an API server that is none."""


class Refusal(Exception):  # noqa: N818  # it becomes a Status object, not a traceback
    """The request is answered with ``status`` and ``reason``."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
