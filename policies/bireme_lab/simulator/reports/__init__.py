"""Outcomes for people: a table for the terminal, and one self-contained HTML page."""
