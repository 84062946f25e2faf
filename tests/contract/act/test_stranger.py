# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine of lane kubelet is let in under its own name by the run that waits for it, and under no other by anybody."""

from __future__ import annotations

import base64
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.kube import csr

from sandbox import kubelet

from .rig import Rig
from .test_diagnosis import told


def asked(rig: Rig) -> list[csr.SigningRequest]:
    return [csr.parse(raw) for raw in rig.kube("GET", csr.PATH)["items"]]


def group(rig: Rig) -> str:
    (secret,) = [
        one for one in rig.kube("GET", "/api/v1/namespaces/kube-system/secrets")["items"] if one["metadata"]["name"] in rig.tokens()
    ]
    return base64.b64decode(secret["data"]["auth-extra-groups"]).decode()


def test_the_request_of_its_own_name_is_approved_while_the_join_waits(rig: Rig) -> None:
    rig.rent()
    assert group(rig) == "system:bootstrappers:tgp"
    name = rig.machine().name
    joined = rig.join()
    assert [one["result"] for one in joined["machines"]] == ["ready"]
    (request,) = asked(rig)
    assert (request.state, request.node, request.message) == ("issued", name, f"asked by the bootstrap token made for {name}")
    again = rig.join()
    assert again["machines"] == [] and len(asked(rig)) == 1


def test_nobody_approves_it_before(rig: Rig) -> None:
    rig.rent()
    rig.until(lambda: asked(rig), "asks for a certificate")
    rig.advance(60)
    assert [one.state for one in asked(rig)] == ["pending"] and rig.machine().name not in rig.nodes()


def test_talos_machines_are_approved_by_their_cluster(rig: Rig) -> None:
    rig.rent(pool="own")
    assert group(rig) == "system:bootstrappers:nodes"


def test_a_token_that_asks_for_another_name_is_denied_and_the_machine_given_back(rig: Rig, monkeypatch: t.Any) -> None:
    made = kubelet.new_key
    monkeypatch.setattr(kubelet, "new_key", lambda _node: made("tgp-a1b2c3d4-victim"))
    rig.rent()
    said = told(rig)
    assert said.code == "token_misused" and "'system:node:tgp-a1b2c3d4-victim'" in said.cause
    assert [(one.state, one.node) for one in asked(rig)] == [("denied", "tgp-a1b2c3d4-victim")]
    assert rig.left() == {} and not rig.nodes()


def test_without_the_binding_nothing_is_rented(rig: Rig) -> None:
    rig.kube("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tgp-gpu-node-bootstrapper")
    with pytest.raises(InvalidInput) as refused:
        rig.rent()
    words = f"{refused.value} {refused.value.remedy}"
    assert "no ClusterRoleBinding tgp-gpu-node-bootstrapper" in words and "files/rbac.yml" in words
    assert rig.creates() == 0
