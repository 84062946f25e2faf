# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that nobody manages (L-46): what they are handed, and the right without which a guard would never end one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from .rig import Rig

ROOT = Path(__file__).resolve().parents[3]
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/tgp-system"
KINDS = {"Role": f"{RBAC}/roles", "RoleBinding": f"{RBAC}/rolebindings"}


def test_L46_without_the_binding_no_machine_is_rented_whose_guard_could_not_read_the_lock(rig: Rig) -> None:
    rig.demo_class["guard"] = {"controllerSilentFor": "24h"}
    with pytest.raises(InvalidInput) as refused:
        rig.rent()
    words = f"{refused.value} {refused.value.remedy}"
    assert "no RoleBinding tgp-gpu-guard in tgp-system" in words and "files/guard.yml" in words
    assert rig.creates() == 0
    for manifest in yaml.safe_load_all((ROOT / "files" / "guard.yml").read_text()):
        rig.kube("POST", KINDS[manifest["kind"]], manifest)
    rig.provision()
    payload = rig.machine().payload or ""
    assert "tgp-guard.timer" in payload and "GUARD_CONTROLLER_SILENT_FOR=86400" in payload
    assert (
        f"GUARD_LEASE=/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{rig.machine().name.split('-')[1]}" in payload
    )


def test_L46_a_machine_that_costs_the_same_when_it_is_off_gets_no_guard_without_a_word(rig: Rig) -> None:
    rig.provision()
    assert rig.machine().cloud == "lambda" and "tgp-guard" not in (rig.machine().payload or "")
