"""DAS: a env of machines that differ, two agents that order and place, and their result."""
