"""What tests of the whole system share: a cluster for them, a tenant's view of it, manifests.

Everything here speaks to the API server as a user would and shares no code with the programs
under test.
"""
