"""The rules that admission policies and CRDs put on the API server, as kube-apiserver 1.37 judges.

:mod:`bireme_lab.embedded.cel.policies` judges requests by admission policies,
:mod:`bireme_lab.embedded.cel.rules` objects by the rules of a CRD. Both refuse in the server's
words. Costs are not counted, types of expressions are not checked beforehand, and no equivalent
resources are known.
"""
