"""What the command line of releases tells in one line."""


class ReleaseError(Exception):
    """A release cannot be made as it is; carries the place, what is wrong and the remedy."""
