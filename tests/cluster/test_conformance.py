# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probes that the emulator has to answer, asked of the real control plane: they state facts, not specs."""

from __future__ import annotations

import pathlib
import ssl
import typing as t

import httpx
import pytest
import yaml

from tests.contract.kube.our_kinds import OUR_PROBES
from tests.contract.kube.probes import KUBELET_PROBES, PROBES, Kubelet

from .plane import Plane

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def kube(plane: Plane) -> t.Iterator[httpx.Client]:
    document = yaml.safe_load(plane.kubeconfig.read_text())
    headers = {"authorization": f"Bearer {document['users'][0]['user']['token']}"}
    trust = ssl.create_default_context(cadata=plane.ca_pem)
    with httpx.Client(base_url=plane.server, headers=headers, verify=trust, trust_env=False, timeout=30) as client:
        yield client


@pytest.fixture
def space(kube: httpx.Client, own: str) -> str:
    """A namespace of one's own."""
    name = f"p{own[-18:].strip('-')}"
    assert kube.post("/api/v1/namespaces", json={"metadata": {"name": name}}).status_code == 201
    return name


@pytest.mark.parametrize("probe", [*PROBES, *OUR_PROBES], ids=lambda probe: probe.__name__.removeprefix("probe_"))
def test_real_control_plane(probe: t.Callable[[httpx.Client, str], None], kube: httpx.Client, space: str) -> None:
    """The emulator's probes hold for a real API server: else the emulator is held against a spec."""
    probe(kube, space)


@pytest.mark.parametrize("probe", KUBELET_PROBES, ids=lambda probe: probe.__name__.removeprefix("probe_"))
def test_real_control_plane_with_a_kubelet(
    probe: t.Callable[[httpx.Client, str, Kubelet], None], plane: Plane, kube: httpx.Client, space: str, tmp_path: pathlib.Path
) -> None:
    """The same for what a kubelet's certificate may do: node authorizer and NodeRestriction."""

    def as_kubelet(key: str, certificate: str) -> httpx.Client:
        trust = ssl.create_default_context(cadata=plane.ca_pem)
        (tmp_path / "kubelet.pem").write_text(certificate + key)
        trust.load_cert_chain(tmp_path / "kubelet.pem")
        return httpx.Client(base_url=plane.server, verify=trust, trust_env=False, timeout=30)

    probe(kube, space, as_kubelet)
