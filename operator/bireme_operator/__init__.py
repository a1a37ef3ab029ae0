"""The operator: the shell that turns decisions into API writes."""
