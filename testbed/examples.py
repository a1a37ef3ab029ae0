"""Numbers of examples of property tests that state their own.

They grow with the profile: ``--hypothesis-profile verify`` gives each ten times as many.
"""

from typing import Any, Final

from hypothesis import settings

TEST_EXAMPLES: Final = 25
"""Examples of a property that states no number, in the profile ``test``."""
VERIFY_EXAMPLES: Final = 1000
MAX_GROWTH: Final = 10


def examples(count: int, **more: Any) -> settings:
    """Return settings with ``count`` examples in the profile ``test``; ``more`` as hypothesis has.

    Call it when a test module is imported: the profile is known by then.
    """
    growth = min(settings().max_examples / TEST_EXAMPLES, MAX_GROWTH)
    return settings(max_examples=round(count * growth), **more)
