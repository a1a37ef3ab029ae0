"""What people watch Bireme by: its metrics as a page, the chart's dashboards."""
