"""Demand forecasts: simple rules, ARIMA, a network, their blend LSP, and the choice of one."""
