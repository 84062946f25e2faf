# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubeconfigs with a client certificate, an exec plugin and a service account: who a real API server says that we are."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube

from . import objects
from .plane import Plane

pytestmark = pytest.mark.cluster
Open = t.Callable[[pathlib.Path], Kube]
_VERSION = "client.authentication.k8s.io/v1"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REFUSED = "a-token-that-no-cluster-knows-0123456789"


def _who(kube: Kube) -> tuple[str, list[str]]:
    """User and groups, by the API server's own account. A failed test prints them."""
    user = kube.create(REVIEWS, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})["status"]["userInfo"]
    print(f"{kube.source}: {user['username']}, groups {', '.join(user['groups'])}")
    return user["username"], user["groups"]


def _plugin(plane: Plane, folder: pathlib.Path, *statuses: dict[str, str]) -> pathlib.Path:
    """A kubeconfig whose exec plugin answers with one status after the other, then with the last one. It counts its calls in ``calls``."""
    for number, status in enumerate(statuses, 1):
        (folder / f"answer{number}").write_text(json.dumps({"apiVersion": _VERSION, "kind": "ExecCredential", "status": status}))
    script = folder / "plugin"
    script.write_text(
        f'#!/bin/sh\ncd "{folder}"\necho x >> calls\ncat "answer$(wc -l < calls)" 2> /dev/null || cat answer{len(statuses)}\n'
    )
    script.chmod(0o700)
    user = {"exec": {"apiVersion": _VERSION, "command": "./plugin", "interactiveMode": "Never"}}
    return plane.write_kubeconfig("plugin", user, folder)


def _token(account: pathlib.Path) -> str:
    return str(json.loads(account.read_text())["users"][0]["user"]["token"])


def test_certificate_exec_plugin_and_service_account(plane: Plane, open_kube: Open, own: str, tmp_path: pathlib.Path) -> None:
    """Three kubeconfigs, three users. The first token of the plugin is refused: it is asked for another one, once."""
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    accounts = [objects.person(plane, f"{own}-{name}", rules) for name in ("file", "plugin")]
    exec_plugin = _plugin(plane, tmp_path, {"token": REFUSED}, {"token": _token(accounts[1])})
    found = [_who(open_kube(path)) for path in (plane.certificate_kubeconfig, exec_plugin, accounts[0])]
    users = ["operator", f"system:serviceaccount:default:{own}-plugin", f"system:serviceaccount:default:{own}-file"]
    assert [user for user, _groups in found] == users
    assert [set(groups) & {"system:masters", "system:serviceaccounts"} for _user, groups in found] == [
        {"system:masters"}, {"system:serviceaccounts"}, {"system:serviceaccounts"},
    ]  # fmt: skip
    assert (tmp_path / "calls").read_text().split() == ["x", "x"]


def test_an_exec_plugin_with_a_certificate(plane: Plane, open_kube: Open, tmp_path: pathlib.Path) -> None:
    certificate, key = ((plane.folder / f"operator.{part}").read_text() for part in ("crt", "key"))
    kube = open_kube(_plugin(plane, tmp_path, {"clientCertificateData": certificate, "clientKeyData": key}))
    for _ in range(2):
        assert _who(kube)[0] == "operator"
    assert (tmp_path / "calls").read_text().split() == ["x"]
