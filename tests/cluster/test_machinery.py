# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talos's own code takes every configuration we make, and refuses nothing that our offline check lets through."""

from __future__ import annotations

import copy
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import MeshChoice, Taint
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import Document, parse
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.validate import check

from tests.fixtures.talos_nodes import make
from tests.fixtures.tunnels import WIREGUARD, tunnel

from .machinery import MODES, Question, ask, merge, validate

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("machinery")]

INSTALLER = f"factory.talos.dev/metal-installer/{'a' * 64}:v1.13.9"
RICH = """
version: v1alpha1
machine:
  certSANs: [127.0.0.1]
  kubelet:
    extraArgs: {rotate-server-certificates: "true"}
    extraConfig: {serverTLSBootstrap: true}
    extraMounts: [{destination: /var/mnt/data, type: bind, source: /var/mnt/data, options: [bind, rshared, rw]}]
    clusterDNS: [10.96.0.10]
  install: {disk: /dev/vda, wipe: true}
  kernel: {modules: [{name: nvidia, parameters: [NVreg_X=1]}]}
  sysctls: {vm.max_map_count: "262144"}
  sysfs: {devices.system.cpu.cpu0.cpufreq.scaling_governor: performance}
  files: [{path: /var/lib/note, content: text, permissions: 384, op: create}]
  nodeLabels: {topology.kubernetes.io/region: nowhere-1}
  nodeAnnotations: {example.test/note: a note}
  features: {rbac: true, kubePrism: {enabled: true, port: 7445}, hostDNS: {enabled: true, forwardKubeDNSToHost: true}}
cluster:
  controlPlane: {endpoint: "https://10.0.0.1:6443"}
  discovery: {enabled: true, registries: {kubernetes: {disabled: true}, service: {endpoint: "https://discovery.example.test/"}}}
---
{apiVersion: v1alpha1, kind: KmsgLogConfig, name: far, url: "tcp://192.0.2.1:5000/"}
---
{apiVersion: v1alpha1, kind: EventSinkConfig, endpoint: "192.0.2.1:8080"}
---
{apiVersion: v1alpha1, kind: KubeSpanConfig, enabled: true, mtu: 1420}
---
{apiVersion: v1alpha1, kind: TimeSyncConfig, ntp: {servers: [time.example.test]}}
---
{apiVersion: v1alpha1, kind: EnvironmentConfig, variables: {http_proxy: "http://proxy.example.test:3128"}}
---
{apiVersion: v1alpha1, kind: RegistryMirrorConfig, name: docker.io, endpoints: [{url: "https://mirror.example.test"}]}
---
{apiVersion: v1alpha1, kind: NetworkDefaultActionConfig, ingress: accept}
---
{apiVersion: v1alpha1, kind: NetworkRuleConfig, name: api, portSelector: {ports: [50000], protocol: tcp}, ingress: [{subnet: 100.64.0.0/10}]}
---
{apiVersion: v1alpha1, kind: WatchdogTimerConfig, device: /dev/watchdog0, timeout: 2m0s}
---
{apiVersion: v1alpha1, kind: WireguardConfig, name: wg7, privateKey: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHl8=, mtu: 1420, listenPort: 51820,
 addresses: [{address: 10.5.0.2/24}], routes: [{destination: 10.6.0.0/16, gateway: 10.5.0.1}],
 peers: [{publicKey: j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=, endpoint: "203.0.113.10:51820", allowedIPs: [10.5.0.0/24],
          persistentKeepaliveInterval: 25s}]}
---
{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, provisioning: {diskSelector: {match: disk.size > 10u * GB}, minSize: 10GB}}
"""
# of these documents the schema alone is checked offline; what Talos demands beyond it, it says itself (or talosctl, where there is one)
LEFT_TO_TALOS = {
    "KmsgLogConfig", "EventSinkConfig", "KubeSpanConfig", "RegistryMirrorConfig", "NetworkRuleConfig", "WatchdogTimerConfig",
    "UserVolumeConfig",
}  # fmt: skip
VALUES: tuple[t.Any, ...] = (None, "", "x y", "a", "-1", "https://x", 7, True, [], ["a"], {}, {"a": "b"})


def _text(documents: t.Sequence[Document]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("template", [None, RICH], ids=["builtin", "rich"])
@pytest.mark.parametrize(
    "node",
    [
        {},
        {"gpu_count": 0, "model": ""},
        {"model": "MI300X"},
        {"mesh": MeshChoice(backend="none"), "auth_key": ""},
        {"mesh": WIREGUARD, "auth_key": "", "tunnel": tunnel()},
        {"login_server": "https://mesh.example.test", "mesh": MeshChoice(accept_routes=True, advertise_routes=("10.9.0.0/16",))},
        {"taints": (Taint("a", "", "NoExecute"),), "startup_taints": (Taint("b", "c", "NoSchedule"),), "ephemeral_taint": False},
        {
            "labels": {"tgp.io/x": "y", "node-role.kubernetes.io/gpu": ""},
            "annotations": {"tgp.io/expires-at": "2026-01-02T03:04:05Z"},
        },
    ],
    ids=["plain", "no GPU", "AMD", "no mesh", "wireguard", "headscale", "taints", "marks"],
)
def test_talos_takes_what_is_made(
    node: dict[str, t.Any], template: str | None, mode: str, record_property: t.Callable[[str, object], None]
) -> None:
    facts = {"install_disk": "/dev/vda", "installer_image": INSTALLER, **node}
    result = validate(_text(build(make(**facts), template)), mode)
    assert (result.ok, result.errors, result.warnings) == (True, (), ())
    record_property("checked", ("configurations by Talos 1.13", 1))


def test_talos_installs_nothing_without_a_disk() -> None:
    documents = build(make())
    assert validate(_text(documents), "cloud").ok and not validate(_text(documents), "metal").ok
    assert not check(documents, mode="cloud").errors and check(documents, mode="metal").errors


def _places(value: t.Any, at: tuple[t.Any, ...]) -> t.Iterator[tuple[t.Any, ...]]:
    if at:
        yield at
    children: t.Iterable[tuple[t.Any, t.Any]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from _places(child, (*at, key))


def _damaged(documents: list[Document]) -> t.Iterator[tuple[str, str]]:
    """(what was done, YAML): every place taken out, given an unknown neighbour, or filled with something odd."""
    texts = [_text([document]) for document in documents]
    for number, document in enumerate(documents):
        for place in _places(document, ()):
            for value in ("<out>", "<neighbour>", *VALUES):
                changed = copy.deepcopy(document)
                holder: t.Any = changed
                for part in place[:-1]:
                    holder = holder[part]
                if value == "<out>":
                    del holder[place[-1]]
                elif value != "<neighbour>":
                    holder[place[-1]] = copy.deepcopy(value)
                elif isinstance(holder, dict):
                    holder["unheardOf"] = 1
                else:
                    continue
                what = f"{document.get('kind', 'config')}: {'.'.join(map(str, place))} = {value!r}"
                yield what, "---\n".join([*texts[:number], _text([changed]), *texts[number + 1 :]])


def _offline(text: str, mode: str) -> str:
    """What the offline check makes of it: refuses, takes, or crashes (which the test reports with the rest)."""
    try:
        return "refuses" if check(parse(text, "It"), mode=mode).errors else "takes"
    except InvalidInput:
        return "refuses"
    except (TypeError, AttributeError, LookupError, ValueError) as error:
        return f"crashes with {error!r} on"


@pytest.mark.parametrize("mode", ["metal", "container"])
@pytest.mark.parametrize("template", [None, RICH], ids=["builtin", "rich"])
def test_what_talos_refuses_the_offline_check_refuses_and_nothing_crashes_it(template: str | None, mode: str) -> None:
    documents = build(make(install_disk="/dev/vda", installer_image=INSTALLER), template)
    damaged = list(_damaged(documents))
    answers = ask([Question(text, mode, strict=False) for _, text in damaged])
    assert sum(not answer.ok for answer in answers) > len(damaged) // 3, "Talos refuses too little: is it being asked at all?"
    wrong = []
    for (what, text), answer in zip(damaged, answers, strict=True):
        verdict = _offline(text, mode)
        judged = what.partition(":")[0] not in LEFT_TO_TALOS
        if verdict.startswith("crashes") or (verdict == "takes" and not answer.ok and judged):
            wrong.append(f"{verdict} {what}\n    Talos: {' '.join(answer.errors) or 'takes it'}")
    assert not wrong, f"The offline check is wrong on {len(wrong)} of {len(damaged)}:\n" + "\n".join(wrong)


def test_a_patch_is_merged_and_its_unknown_keys_are_refused() -> None:
    config = _text(build(make()))
    result = merge(config, "machine: {nodeLabels: {example.test/more: 'yes'}}", mode="cloud")
    assert result.ok and yaml.safe_load(result.config.partition("\n---")[0])["machine"]["nodeLabels"]["example.test/more"] == "yes"
    assert "unknown keys" in merge(config, "machine: {systemd: {}}", mode="cloud").errors[0]


def test_strict_counts_warnings_as_errors() -> None:
    documents = build(make())
    del documents[0]["machine"]["type"]
    mild, strict = validate(_text(documents), "cloud", strict=False), validate(_text(documents), "cloud")
    assert mild.ok and mild.warnings and not strict.ok
