"""Helpers of whole-system tests, which speak to the API server as a user would."""
