"""Commands of the lab."""
