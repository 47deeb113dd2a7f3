"""Connections of type ``kubernetes``: the files that they name, what is refused, and that nothing of them shows."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.certificates import Authority
from topicshift.adapters import kube_connection
from topicshift.adapters.rest import Endpoint, endpoint, endpoint_from_env
from topicshift.core.errors import SpecError, Unreadable

SECRET = "canary-of-the-token"


def config(folder: Path, user: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    """The fields of a connection that names a kubeconfig with this user."""
    Authority(folder / "ca")
    known = {"server": "https://127.0.0.1:6443/", "certificate-authority": "ca/ca.pem", **cluster}
    text = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "gone", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {k: v for k, v in known.items() if v is not None}}],
        "users": [{"name": "u", "user": user}],
    }
    (folder / "config").write_text(yaml.safe_dump(text))
    return {"conn_type": "kubernetes", "extra": {"kube_config_path": str(folder / "config")}}


def test_a_token_of_a_kubeconfig_is_used_and_never_shown(tmp_path: Path) -> None:
    found = endpoint("k", config(tmp_path, {"token": SECRET}))
    assert found.url == "https://127.0.0.1:6443" and found.headers() == {"Authorization": f"Bearer {SECRET}"}
    assert SECRET not in repr(found)
    assert found.trust is not None and found.trust().verify_mode.name == "CERT_REQUIRED"


def test_a_token_file_is_read_for_each_request(tmp_path: Path) -> None:
    found = endpoint("k", config(tmp_path, {"tokenFile": "token"}))
    with pytest.raises(Unreadable, match="token cannot be read"):
        found.headers()
    for token in ("first", "second"):
        (tmp_path / "token").write_text(f"{token}\n")
        assert found.headers() == {"Authorization": f"Bearer {token}"}


def test_a_clients_certificate_is_taken_from_files_or_from_the_kubeconfig_itself(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path / "clients").issue("mover")
    inline = {
        f"client-{k}-data": base64.b64encode(p.read_bytes()).decode()
        for k, p in (("certificate", certificate), ("key", key))
    }
    for user in ({"client-certificate": str(certificate), "client-key": str(key)}, inline):
        found = endpoint("k", config(tmp_path, user))
        assert found.trust is not None and found.trust() is not None and found.headers() == {}


@pytest.mark.parametrize(
    ("user", "cluster", "seen"),
    [
        ({"exec": {"command": "aws"}}, {}, "its user has exec, which would run a program"),
        ({"auth-provider": {"name": "x"}}, {}, "its user has auth-provider"),
        ({"token": SECRET}, {"insecure-skip-tls-verify": True}, "skips the check of the server's certificate"),
        ({"token": SECRET}, {"server": "http://127.0.0.1:8080"}, "no https address"),
        ({"token": SECRET}, {"server": None}, "no context with a cluster and a user"),
        ({"client-certificate": "gone.pem"}, {}, "the file of its client-certificate cannot be read"),
    ],
)
def test_what_a_kubeconfig_may_not_say_is_refused_by_name(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], seen: str
) -> None:
    with pytest.raises(SpecError, match=seen) as error:
        endpoint("k", config(tmp_path, user, **cluster))
    assert SECRET not in str(error.value)


def test_contexts_and_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    fields = config(tmp_path, {"token": SECRET})
    for context in ("two", "three"):
        with pytest.raises(SpecError, match="no context with a cluster and a user"):
            endpoint("k", {**fields, "extra": {**fields["extra"], "cluster_context": context}})
    assert endpoint("k", {**fields, "extra": {**fields["extra"], "cluster_context": "one"}}).url
    for extra, seen in [
        ({}, "names no API server"),
        ("no json", "no JSON object"),
        ({"kube_config_path": str(tmp_path / "gone")}, "cannot be read"),
        ({"in_cluster": True}, "in no pod with a token"),
    ]:
        with pytest.raises(SpecError, match=seen):
            endpoint("k", {"conn_type": "kubernetes", "extra": extra})
    (tmp_path / "config").write_text(f"[{SECRET}")
    with pytest.raises(SpecError, match="cannot be read") as error:
        endpoint("k", fields)
    assert SECRET not in str(error.value)


def test_within_a_pod_its_own_token_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_connection, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "ca.crt").write_bytes(Authority(tmp_path / "ca").ca.read_bytes())
    found = endpoint("k", {"conn_type": "kubernetes", "extra": '{"in_cluster": true}'})
    assert found.url == "https://[::1]:443" and found.headers() == {"Authorization": f"Bearer {SECRET}"}
    assert found.trust is not None and found.trust() is not None


def test_in_a_terminal_it_is_json_or_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(tmp_path, {"token": SECRET})
    path = f"{tmp_path}/config"
    for text in (
        f'{{"conn_type": "kubernetes", "extra": {{"kube_config_path": "{path}"}}}}',
        f"kubernetes://?kube_config_path={path.replace('/', '%2F')}",
        f"kubernetes://?extra__kubernetes__kube_config_path={path.replace('/', '%2F')}",
    ):
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", text)
        found: Endpoint = endpoint_from_env("shop")
        assert found.url == "https://127.0.0.1:6443"
