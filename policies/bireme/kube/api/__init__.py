"""The kinds of ``bireme.dev/v1alpha1`` as pydantic models, from which the CRDs are generated.

Field docstrings become ``kubectl explain``, limits become schema limits, and rules across fields
become CEL (:class:`~bireme.kube.api.base.Rule`). The API server enforces them all.
"""
