"""Tokens of accounts on the embedded API server."""

import pytest

from bireme_lab.embedded.builtin.account_tokens import AUDIENCE, AccountTokens, InvalidTokenError
from bireme_lab.embedded.cluster import make_api
from tests.unit.lab.embedded.requests import NOW, PODS, a_pod, ask, done

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


def test_a_token_is_its_accounts_while_account_and_pod_are_there() -> None:
    tokens, clock = AccountTokens(), [NOW]
    api = make_api(lambda: clock[0], tokens)
    done(api, "POST", ACCOUNTS, {"metadata": {"name": "ann"}})
    pod = done(api, "POST", PODS, a_pod())
    reference = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"]}
    spec = {"audiences": ["progress"], "boundObjectRef": reference}
    bound = done(api, "POST", f"{ACCOUNTS}/ann/token", {"spec": spec})["status"]["token"]
    plain = done(api, "POST", f"{ACCOUNTS}/ann/token", {"spec": {}})["status"]["token"]

    user, audiences = tokens.review(bound, ["other", "progress"])
    assert (user.name, audiences) == ("system:serviceaccount:default:ann", ["progress"])
    assert user.extra["authentication.kubernetes.io/pod-uid"] == (pod["metadata"]["uid"],)
    review = {"spec": {"token": bound, "audiences": ["other"]}}
    status = done(api, "POST", REVIEWS, review)["status"]
    assert status["error"] == (
        '[invalid bearer token, token audiences ["progress"] is invalid for the target audiences '
        '["other"]]'
    )
    assert tokens.user(bound) is None, "it is not for the API server"
    sender = tokens.user(plain)
    assert sender is not None
    assert sender.name == user.name
    assert tokens.review(plain, ())[1] == [AUDIENCE]

    head, _, signature = plain.rpartition(".")
    assert tokens.user(f"{head}x.{signature}") is None
    done(api, "DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    with pytest.raises(InvalidTokenError):
        tokens.review(bound, ["progress"])
    clock[0] += 3600
    assert tokens.user(plain) is None, "its hour is over"
    short = ask(api, "POST", f"{ACCOUNTS}/ann/token", {"spec": {"expirationSeconds": 60}})
    assert short.code == 422
    assert "may not specify a duration less than 10 minutes" in short.body["message"]
