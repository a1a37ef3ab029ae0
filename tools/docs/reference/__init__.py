"""Reference pages from what the programs themselves read: CRD schemas, settings, chart values."""
