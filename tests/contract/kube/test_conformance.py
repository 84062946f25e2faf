# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulator answers the probes that a real control plane answers."""

from __future__ import annotations

import base64
import typing as t

import httpx
import pytest

from sandbox.kube import KubeApi

from .our_kinds import OUR_PROBES
from .probes import KUBELET_PROBES, PROBES, Kubelet


def _name(probe: t.Callable[..., None]) -> str:
    return probe.__name__.removeprefix("probe_")


@pytest.mark.parametrize("probe", [*PROBES, *OUR_PROBES], ids=_name)
def test_emulator(probe: t.Callable[[httpx.Client, str], None], kube: httpx.Client, space: str) -> None:
    probe(kube, space)


@pytest.mark.parametrize("probe", KUBELET_PROBES, ids=_name)
def test_emulator_with_a_kubelet(
    probe: t.Callable[[httpx.Client, str, Kubelet], None], api: KubeApi, kube: httpx.Client, space: str
) -> None:
    def as_kubelet(key: str, certificate: str) -> httpx.Client:
        headers = {"x-kubelet-certificate": base64.b64encode(certificate.encode()).decode()}
        return httpx.Client(transport=httpx.WSGITransport(app=api.app), base_url="https://kube.test", headers=headers)

    probe(kube, space, as_kubelet)
