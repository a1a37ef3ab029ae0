"""DAS: machines that differ, and two agents that order jobs and place them (Xing et al. 2023)."""
