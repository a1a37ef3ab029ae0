"""The rules that the chart and the CRDs put on the API server, judged as kube-apiserver 1.37 does.

:mod:`testbed.cel.policies` judges requests by admission policies, :mod:`testbed.cel.rules` objects
by the rules of a CRD. Both refuse in the server's words. Costs are not counted, types of
expressions are not checked beforehand, and no equivalent resources are known. Kinds of Kubernetes
have no defaults here. :mod:`testbed.cel.examples` is the table that one test judges here, and that
one test in the tier ``cluster`` puts to the real server.
"""
