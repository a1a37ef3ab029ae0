"""Monitoring: metrics as a page, the chart's dashboards."""
