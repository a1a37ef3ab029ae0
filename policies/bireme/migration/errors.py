"""What stops a conversion."""

from bireme.core.errors import BiremeError


class ConversionError(BiremeError):
    """A manifest cannot be converted; the message names the object, the field and the remedy."""
