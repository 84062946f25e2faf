# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second cluster with the same id, and a lost record store, with the playbooks as users run them."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from .box import NOTHING, Sandbox

GENERATION = re.compile(r"generation ([0-9a-f-]{36})")


@pytest.fixture(scope="module")
def production(start: t.Callable[..., Sandbox]) -> Sandbox:
    """Two machines of the cluster, each with a running pod."""
    sandbox = start(speed=100)
    sandbox.playbook("provision", extra_vars={"nodes": {"training": 2}}).succeeded()
    for name in names(sandbox):
        sandbox.run_job(name, f"job-{name}")
    return sandbox


def names(sandbox: Sandbox) -> list[str]:
    return sorted(one["name"] for one in sandbox.living())


@pytest.mark.parametrize("restored", [False, True])
def test_L12a_E_a_twin_of_the_same_id_ends_nothing(production: Sandbox, tmp_path: Path, restored: bool) -> None:
    """Two kubeconfigs and two state folders over one set of cloud accounts, by the playbooks."""
    before = names(production)
    kubeconfig = production.control.post("/twins", json={"restored": restored}).raise_for_status().json()["kubeconfig"]
    theirs = {"KUBECONFIG": kubeconfig, "K8S_AUTH_KUBECONFIG": kubeconfig, "TGP_STATE_DIR": str(tmp_path)}
    for _run in range(3):
        production.advance(1300)
        said = production.playbook("reap", env=theirs).words
        assert ("carry the stamp of another record store" in said) is not restored, said
    assert names(production) == before and sorted(production.claims()) == before


def test_L12a_E_a_lost_store_reports_until_a_person_confirms(production: Sandbox) -> None:
    """The way back for a person: status.yml, reap.yml and adopt.yml name the generation, and adopt.yml takes it."""
    before = names(production)
    found = GENERATION.search(production.playbook("status").succeeded().out)
    assert found is not None
    generation = found[1]
    production.kube.delete("/api/v1/namespaces/tgp-system").raise_for_status()
    assert generation in production.playbook("reap").words
    assert names(production) == before and production.claims() == {}
    assert generation in production.playbook("adopt").succeeded().words
    confirmed = {"generation": generation}
    assert production.playbook("adopt", "--check", "--diff", extra_vars=confirmed).succeeded().count("changed") == 1
    assert production.playbook("adopt", extra_vars=confirmed).succeeded().count("changed") == 1
    assert production.playbook("adopt", extra_vars=confirmed).succeeded().count("changed") == 0
    production.playbook("reap").succeeded()
    assert sorted(production.claims()) == before
    production.playbook("destroy", extra_vars={"everything": True, "force": True}).succeeded()
    assert production.left() == NOTHING
