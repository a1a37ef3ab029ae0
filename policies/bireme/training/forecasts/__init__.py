"""Forecasts of a series from a file: the trial of all forecasters, its report and its picture."""
