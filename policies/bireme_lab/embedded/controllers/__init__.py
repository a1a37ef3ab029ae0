"""Controllers of the embedded cluster: garbage, namespaces, nodes, Jobs, budgets, accounts."""
