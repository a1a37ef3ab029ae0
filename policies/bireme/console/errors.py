"""What stops an answer."""

from bireme.core.errors import BiremeError


class ConsoleError(BiremeError):
    """The cluster cannot be asked, or has no such object; the message says what to do."""
