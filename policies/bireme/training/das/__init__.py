"""DAS: a world of machines that differ, two agents that order and place, and their judgement."""
