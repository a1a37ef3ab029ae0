"""Inputs for parsers: good ones, and good ones that something is wrong with."""
