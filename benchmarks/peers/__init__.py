"""Bireme beside other gang schedulers: one load for all, each with its recommended settings."""
