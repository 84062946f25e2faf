# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server's own Service is brought into the tailnet and out of it again on a real control plane, whose doors are tried."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.modules import control_plane_info, tailscale_expose

from .plane import Plane

pytestmark = pytest.mark.cluster
SERVICE = "/api/v1/namespaces/default/services/kubernetes"


def call(module: t.Any, **params: t.Any) -> dict[str, t.Any]:
    defaults = {name: option.get("default") for name, option in module.SPEC["argument_spec"].items()}
    return execute(module.SPEC, module.run, Task({**defaults, **params}))


def test_S0_11_the_real_service_is_exposed_once(plane: Plane) -> None:
    """The Service that the API server keeps for itself takes our annotations and gives them up again."""
    where = {"kubeconfig": str(plane.kubeconfig)}
    before = plane.get(SERVICE)["metadata"].get("annotations") or {}
    first = call(tailscale_expose, hostname="k8s-api", **where)
    assert first["changed"] and first["endpoints"] == ["https://k8s-api:443"]
    assert plane.get(SERVICE)["metadata"]["annotations"] == {**before, **first["annotations"]}
    assert call(tailscale_expose, hostname="k8s-api", **where)["changed"] is False
    assert call(tailscale_expose, state="absent", **where)["changed"] is True
    assert (plane.get(SERVICE)["metadata"].get("annotations") or {}) == before


def test_the_real_api_server_s_door_is_open_and_there_is_no_trustd(plane: Plane) -> None:
    """The look at the doors reads a real server's certificate."""
    told = call(control_plane_info, endpoint=plane.server, trustd_port=1, timeout=2.0)
    assert (told["kubelet_lane"], told["talos_lane"]) == (True, False)
    assert "127.0.0.1" in told["doors"][0]["certificate_names"]
