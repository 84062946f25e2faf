# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every script and every user data that the lanes render, read by programs of others."""

from __future__ import annotations

import itertools
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap import container
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet.cloud_config import boot
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet.script import BOOTSTRAP
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import documents_for, payload, start_script
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.user_data import pack
from ansible_collections.tgp.gpu.plugins.module_utils.model import Capability, Carrier, Lane, MeshChoice

from tests import outsiders
from tests.fixtures.talos_nodes import make
from tests.fixtures.tunnels import WIREGUARD, tunnel

TEMPLATE = """
machine:
  kubelet:
    extraConfig: {maxPods: 40}
    extraMounts: [{destination: /var/mnt/a b, source: /var/mnt/a b, type: bind, options: [bind]}]
  kernel: {modules: [{name: nfs}]}
  files:
    - {path: /var/lib/x/token, permissions: 384, op: create, content: "no line end"}
    - {path: /etc/hosts, permissions: 420, op: append, content: "10.0.0.1 quoted'name\n"}
cluster: {}
"""
FLANNEL = {"cni": "flannel", "flannel_cni_url": "https://example.org/flannel.tgz", "flannel_cni_sha256": "a" * 64}
MESHES = (
    {},
    {"mesh": MeshChoice(accept_routes=True), "login_server": "https://hs.example.org"},
    {"mesh": MeshChoice(backend="none"), "auth_key": ""},
    {"mesh": WIREGUARD, "auth_key": "", "tunnel": tunnel()},
)
VARIANTS = [
    ({**mesh, **cni, "gpu_count": gpus}, template)
    for mesh, cni, gpus, template in itertools.product(MESHES, ({}, FLANNEL), (0, 8), (None, TEMPLATE))
]
CARRIERS = {
    Carrier.SCRIPT: Capability("b", (Lane.KUBELET,), carrier=Carrier.SCRIPT, user_data_limit=16_000),
    Carrier.ENVIRONMENT: Capability("c", (Lane.KUBELET,), carrier=Carrier.ENVIRONMENT, user_data_limit=32_000),
}


def _scripts() -> t.Iterator[tuple[str, str]]:
    """Every shell script as (shell, text)."""
    yield "bash", BOOTSTRAP
    for changes, template in VARIANTS[::5]:
        spec = make(lane=Lane.KUBELET, **changes)
        script = start_script(boot(spec, documents_for(spec, template)[0]))
        yield "bash", script
        for capability in CARRIERS.values():
            yield "bash", pack(script, capability, spec.name).user_data
    words = {"@VERSION@": "1.2.3", "@FLAGS@": "--accept-dns=false", "@PROGRAM@": "serve", "@COMMAND@": "serve --port 80"}
    script = container._SCRIPT
    for word, value in words.items():
        script = script.replace(word, value)
    yield "sh", script


@pytest.mark.skipif(outsiders.shellcheck() is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_against_any_script(record_property: t.Callable[[str, object], None]) -> None:
    scripts = list(_scripts())
    assert [found for shell, text in scripts if (found := outsiders.shell_faults(text, shell))] == []
    record_property("checked", ("scripts by shellcheck", len(scripts)))


def test_cloud_init_takes_every_user_data(tmp_path: Path, record_property: t.Callable[[str, object], None]) -> None:
    if outsiders.cloud_init() is None:
        pytest.skip("cloud-init is neither installed nor to be had from the system's packages")
    texts = [payload(make(lane=Lane.KUBELET, **changes), template).text for changes, template in VARIANTS[::3]]
    assert [found for text in texts if (found := outsiders.user_data_faults(text, tmp_path))] == []
    assert outsiders.user_data_faults(texts[0].replace("permissions:", "permission:"), tmp_path)
    record_property("checked", ("user data by cloud-init schema", len(texts)))
