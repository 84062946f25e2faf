# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every Talos release takes the configurations made for it, by its own code; and patches do what they do there (S4-29, S0-23)."""

from __future__ import annotations

import base64
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane, LaunchRequest, MeshChoice, Offer
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.launch import machine_body as gcp_body
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vultr.launch import machine_body as vultr_body
from ansible_collections.tgp.gpu.plugins.module_utils.talos import patches
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.releases.tables import BUILT_IN
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import Document, at, machine_document, of_kind, parse, to_yaml
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation import validate
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.validate import check

from tests.fixtures.talos_nodes import make
from tests.fixtures.tunnels import WIREGUARD, tunnel

from .conftest import built
from .machinery import MODES, Question, ask

pytestmark = pytest.mark.cluster
RELEASES = ("1.10", "1.11", "1.12", "1.13", "1.14")
OLD_CARDS, NEW_CARDS = ("P100", "V100", "P4000"), ("T4", "A100", "RTX 4090", "H100 SXM", "B200")
PATCH = """
machine:
  sysctls: {vm.max_map_count: "262144"}
  kubelet:
    extraArgs: {rotate-server-certificates: "true"}
    extraConfig: {maxPods: 250}
  nodeLabels: {example.test/name: "{{ NodeName }}"}
  certSANs: [10.0.0.9]
---
apiVersion: v1alpha1
kind: KmsgLogConfig
name: far
url: tcp://192.0.2.1:5000/
"""


DEFAULT_RUNTIME = """
machine:
  files:
    - op: create
      permissions: 420
      path: /etc/cri/conf.d/20-customization.part
      content: |
        [plugins."io.containerd.cri.v1.runtime".containerd]
          default_runtime_name = "nvidia"
"""


def _program(release: str, request: pytest.FixtureRequest) -> str:
    name = "machinery" if release == "1.13" else f"machinery-{release}"
    built(name, request)
    return name


def _nodes(release: str) -> t.Iterator[dict[str, t.Any]]:
    lowest, highest = BUILT_IN.releases[1, int(release[2:])].kubernetes
    mirrored = {
        "registry_mirrors": {
            "docker.io": ("https://mirror.example.test", "http://10.0.0.5:5000"),
            "*": ("https://all.example.test",),
        }
    }
    for minor in (lowest, highest):
        yield {"kubernetes_version": f"1.{minor}.0"}
    for model in (*OLD_CARDS, *NEW_CARDS, "MI300X"):
        yield {"model": model, **mirrored, "patches": (PATCH,)}
    if int(release[2:]) < 13:  # from then on it is refused before Talos sees it
        yield {"patches": (DEFAULT_RUNTIME,)}
    yield {"gpu_count": 0, "model": ""}
    yield {"mesh": MeshChoice(backend="none"), "auth_key": ""}
    for one in (
        tunnel(),
        tunnel(allowed=("10.77.0.0/24",)),
        tunnel(address="fd77::11/64", hub_address="fd77::1", allowed=("fd77::/16",)),
    ):
        yield {"mesh": WIREGUARD, "auth_key": "", "tunnel": one}
    yield {"mesh": MeshChoice(accept_routes=True, advertise_routes=("10.9.0.0/16",)), "login_server": "https://mesh.example.test"}


@pytest.mark.parametrize("release", RELEASES)
def test_s4_29_every_release_takes_what_is_made_for_it(
    release: str, request: pytest.FixtureRequest, record_property: t.Callable[[str, object], None]
) -> None:
    program = _program(release, request)
    questions = []
    for facts in _nodes(release):
        lowest, highest = BUILT_IN.releases[1, int(release[2:])].kubernetes
        known = {"talos_version": f"{release}.0", "kubernetes_version": f"1.{highest}.0", "install_disk": "/dev/vda"}
        known["installer_image"] = f"factory.talos.dev/metal-installer/{'a' * 64}:v{release}.0"
        documents = build(make(**{**known, **facts}))
        for mode in MODES:
            found = check(
                documents, mode=mode, talos_version=f"{release}.0", kubernetes_version=facts.get("kubernetes_version", "")
            )
            assert found.errors == (), found.errors
            questions.append(Question(to_yaml(documents), mode, strict=release != "1.14"))
    answers = ask(questions, program)
    assert [one.errors for one in answers if not one.ok] == []
    assert len(answers) == len(questions) >= 36
    record_property("checked", (f"configurations by Talos {release}", len(answers)))


def _handed_over(cloud: str, user_data: str) -> str:
    """What Talos reads at boot, out of the body of the create call."""
    kind, zone = ("vcg-a16-6c-64g-16vram", "ewr") if cloud == "vultr" else ("g2-standard-4", "us-central1-a")
    offer = Offer(cloud, "an-offer", kind, "A16", 1, None, cloud_region=zone)
    request = LaunchRequest(
        name="tgp-x", offer=offer, user_data=user_data, marks={}, settings={"talosImage": "projects/p/global/images/i"}
    )
    if cloud == "vultr":
        return base64.b64decode(vultr_body(request, {"snapshot_id": "x"}, "")["user_data"], validate=True).decode()
    (item,) = gcp_body(request)["metadata"]["items"]
    assert item["key"] == "user-data"
    return str(item["value"])


@pytest.mark.parametrize("cloud", ["vultr", "gcp"])
@pytest.mark.parametrize("release", RELEASES)
def test_every_release_takes_the_user_data_of_clouds_that_boot_images(
    release: str, cloud: str, request: pytest.FixtureRequest, record_property: t.Callable[[str, object], None]
) -> None:
    program, questions = _program(release, request), []
    for facts in _nodes(release):
        highest = BUILT_IN.releases[1, int(release[2:])].kubernetes[1]
        known = {"talos_version": f"{release}.0", "kubernetes_version": f"1.{highest}.0", "cloud": cloud, "lane": Lane.TALOS}
        known["installer_image"] = f"factory.talos.dev/metal-installer/{'a' * 64}:v{release}.0"
        made = payload(make(**{**known, **facts}), None, capability=CAPABILITIES[cloud])
        assert made.text is not None
        questions.append(Question(_handed_over(cloud, made.text), "cloud", strict=release != "1.14"))
    answers = ask(questions, program)
    assert [one.errors for one in answers if not one.ok] == [] and len(answers) == len(questions) >= 12
    record_property("checked", (f"user data of {cloud} by Talos {release}", len(answers)))


@pytest.mark.parametrize("release", RELEASES)
def test_s4_29_every_release_refuses_what_is_wrong(release: str, request: pytest.FixtureRequest) -> None:
    (good, bad) = ask([Question(to_yaml(build(make(talos_version=f"{release}.0"))), "cloud"), Question("machine: {systemd: {}}", "cloud")],
                      _program(release, request))  # fmt: skip
    assert good.ok is True or release == "1.14"
    assert not bad.ok


BASE = """
version: v1alpha1
machine:
  type: worker
  token: trustd.0123456789abcdef
  ca: {crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}
  certSANs: [127.0.0.1]
  kubelet:
    image: ghcr.io/siderolabs/kubelet:v1.36.3
    clusterDNS: [10.96.0.10]
    extraArgs: {v: "2", feature-gates: A=true}
    extraConfig: {maxPods: 110, registerWithTaints: [{key: a, effect: NoSchedule}], evictionHard: {memory.available: 1Gi}}
    extraMounts: [{destination: /var/a, type: bind, source: /var/a, options: [bind]}]
    nodeIP: {validSubnets: [100.64.0.0/10]}
  kernel: {modules: [{name: nvidia, parameters: [a=1]}, {name: nvidia_uvm}]}
  sysctls: {kernel.kexec_load_disabled: "1", vm.x: "2"}
  files: [{path: /var/lib/a, content: x, permissions: 384, op: create}]
  nodeLabels: {a: b, c: d}
  features: {kubePrism: {enabled: true, port: 7445}, hostDNS: {enabled: true, forwardKubeDNSToHost: true}}
cluster:
  controlPlane: {endpoint: "https://10.0.0.1:6443"}
  token: node01.0123456789abcdef
  ca: {crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}
  network: {dnsDomain: cluster.local, podSubnets: [10.244.0.0/16], serviceSubnets: [10.96.0.0/12]}
---
{apiVersion: v1alpha1, kind: ExtensionServiceConfig, name: tailscale, configFiles: [{content: a, mountPath: /a}], environment: [A=1]}
---
{apiVersion: v1alpha1, kind: NetworkRuleConfig, name: api, portSelector: {ports: [50000], protocol: tcp}, ingress: [{subnet: 100.64.0.0/10}]}
---
{apiVersion: v1alpha1, kind: KmsgLogConfig, name: far, url: "tcp://192.0.2.1:5000/"}
---
{apiVersion: v1alpha1, kind: HostnameConfig, hostname: one}
"""
EXTENSION = "{apiVersion: v1alpha1, kind: ExtensionServiceConfig, name: tailscale, "
NOTHING = "machine: {nodeLabels: {a: b}}"
PATCHES = [
    "machine: {certSANs: [10.0.0.1]}",
    "machine: {kubelet: {image: 'ghcr.io/siderolabs/kubelet:v1.36.2', clusterDNS: [10.96.0.11]}}",
    "machine: {kubelet: {extraArgs: {v: '4', new: 'x'}}}",
    "machine: {kubelet: {extraConfig: {maxPods: 9, registerWithTaints: [{key: b, effect: NoExecute}], evictionHard: {x: 5%}}}}",
    "machine: {kubelet: {extraMounts: [{destination: /var/b, type: bind, source: /var/b, options: [bind]}]}}",
    "machine: {kernel: {modules: [{name: nvidia_drm}]}}",
    "machine: {kernel: {modules: [{name: nvidia_uvm, $patch: delete}]}}",
    "machine: {kernel: {modules: [{name: nvidia_uvm, $patch: delete}, {name: last}]}}",
    "machine: {sysctls: {vm.x: '3', vm.y: '4'}}",
    "machine: {sysctls: {kernel.kexec_load_disabled: {$patch: delete}}}",
    "machine: {sysctls: {$patch: delete}}",
    "machine: {nodeLabels: {a: {$patch: delete}, e: f}}",
    "machine: {features: {kubePrism: {enabled: false}}}",
    "machine: {install: {disk: /dev/sda, wipe: true}}",
    "cluster: {network: {podSubnets: [10.1.0.0/16], serviceSubnets: [10.2.0.0/16]}}",
    "cluster: {network: {dnsDomain: ''}}",
    "cluster: {network: null}",
    "machine: {files: [{path: /var/lib/b, content: y, permissions: 0o600, op: create}]}",
    "{apiVersion: v1alpha1, kind: KmsgLogConfig, name: far, $patch: delete}",
    "{apiVersion: v1alpha1, kind: KmsgLogConfig, name: far, url: 'tcp://192.0.2.2:5000/'}",
    "{apiVersion: v1alpha1, kind: KmsgLogConfig, name: near, url: 'tcp://192.0.2.2:5000/'}",
    "{apiVersion: v1alpha1, kind: HostnameConfig, hostname: two}",
    "{apiVersion: v1alpha1, kind: NetworkRuleConfig, name: api, portSelector: {ports: [6443]}, ingress: [{subnet: 10.0.0.0/8}]}",
    EXTENSION + "environment: [B=2]}",
    EXTENSION + "configFiles: [{content: b, mountPath: /a}, {content: c, mountPath: /c}]}",
    "{apiVersion: v1alpha1, kind: WatchdogTimerConfig, device: /dev/watchdog0, timeout: 2m0s}",
    "machine: {certSANs: [a.test]}\n---\n{apiVersion: v1alpha1, kind: HostnameConfig, hostname: three}",
]
REFUSED = [
    "machine: {env: {NOTHERE: {$patch: delete}}}",
    "machine: {sysctls: {nothere: {$patch: delete}}}",
    "machine: {kernel: {modules: [{name: nothere, $patch: delete}]}}",
    "version: v1alpha1\n$patch: delete",
    "machine: {kubelet: {extraConfig: {evictionHard: [a]}}}",
    "machine: {certSANs: {a: b}}",
    "machine: {unheardOf: 1}",
]


def _plain(text: str) -> list[Document]:
    """Read as Talos writes it back, without what it adds and leaves out: empty values."""

    def trimmed(value: t.Any) -> t.Any:
        if isinstance(value, dict):
            return {key: trimmed(item) for key, item in value.items() if item not in (None, "", {}, [])}
        return [trimmed(item) for item in value] if isinstance(value, list) else value

    found = [trimmed(trimmed(one)) for one in parse(text, "It")]
    for one in found:
        one.pop("debug", None), one.pop("persist", None)
    return sorted(found, key=lambda one: (str(one.get("kind", "")), str(one.get("name", ""))))


@pytest.mark.parametrize("release", RELEASES[2:])
def test_a_patch_does_what_it_does_in_talos(release: str, request: pytest.FixtureRequest) -> None:
    answers = ask([Question(BASE, "cloud", False, (patch,)) for patch in PATCHES], _program(release, request))
    nothing = ask([Question(BASE, "cloud", False, (NOTHING,))], _program(release, request))[0]
    assert _plain(nothing.config) == _plain(BASE)
    for patch, answer in zip(PATCHES, answers, strict=True):
        assert answer.config, (patch, answer.errors)
        documents = parse(BASE, "It")
        patches.apply(documents, patches.read(patch, "The patch"))
        assert _plain(yaml.safe_dump_all(documents)) == _plain(answer.config), patch


@pytest.mark.usefixtures("machinery")
def test_what_talos_does_not_patch_is_not_patched_here_either() -> None:
    answers = ask([Question(BASE, "cloud", False, (patch,)) for patch in REFUSED])
    assert [patch for patch, answer in zip(REFUSED, answers, strict=True) if not answer.errors] == []
    for patch in REFUSED:
        documents = parse(BASE, "It")
        try:
            patches.apply(documents, patches.read(patch, "The patch"))
        except InvalidInput:
            continue
        assert check(documents).errors, patch


@pytest.mark.usefixtures("machinery")
def test_what_a_gpu_node_needs_is_in_what_talos_reads() -> None:
    documents = build(make(model="B200", patches=(PATCH,)))
    (answer,) = ask([Question(to_yaml(documents), "cloud", True, ("machine: {sysctls: {vm.x: '1'}}",))])
    config = machine_document(parse(answer.config, "It"))
    names = [one["name"] for one in at(config, "machine.kernel.modules")]
    assert names == ["nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "ib_umad"]
    assert at(config, "machine.sysctls")["kernel.kexec_load_disabled"] == "1"
    assert at(config, "machine.nodeLabels")["example.test/name"] == "tgp-ml-3f9a2c"
    assert of_kind(parse(answer.config, "It"), "KmsgLogConfig", "far") is not None


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_does_not_know_yet_is_what_it_is_said_not_to_know(release: str, request: pytest.FixtureRequest) -> None:
    """Of every kind of document that the newest schema has."""
    lowest, _highest = BUILT_IN.releases[1, int(release[2:])].kubernetes
    base = build(make(talos_version=f"{release}.0", kubernetes_version=f"1.{lowest}.0"))
    kinds = [kind for kind in validate.kinds() if kind]
    documents = [[*base, {"apiVersion": "v1alpha1", "kind": kind}] for kind in kinds]
    answers = ask([Question(to_yaml(one), "cloud", False) for one in documents], _program(release, request))
    for kind, one, answer in zip(kinds, documents, answers, strict=True):
        unknown = any("not registered" in error for error in answer.errors)
        said = any(f"{kind} needs Talos" in error for error in check(one, talos_version=f"{release}.0").errors)
        assert said is unknown, kind


WORKERS = (
    "machine: {features: {rbac: true, stableHostname: true, apidCheckExtKeyUsage: true}}",
    "machine: {logging: {destinations: [{endpoint: 'udp://10.0.0.1:5044', format: json_lines}]}}",
    "machine: {network: {interfaces: [{interface: eth0, dhcp: true, vip: {ip: 10.0.0.9}}]}}",
    "machine: {network: {interfaces: [{interface: eth0, dhcp: true}]}}",
    "cluster: {discovery: {enabled: true, registries: {service: {endpoint: 'https://d.test/'}}}}",
    "cluster: {discovery: {enabled: true, registries: {service: {endpoint: 'https://d.test/path'}}}}",
    "machine: {network: {kubespan: {enabled: false}}}\n---\n{apiVersion: v1alpha1, kind: KubeSpanConfig, enabled: false}",
    "machine: {time: {servers: [a.test]}}\n---\n{apiVersion: v1alpha1, kind: TimeSyncConfig, enabled: true}",
    "machine: {time: {disabled: false}}\n---\n{apiVersion: v1alpha1, kind: TimeSyncConfig, enabled: true}",
)


@pytest.mark.parametrize("template", WORKERS)
def test_a_worker_is_taken_or_refused_as_talos_does(template: str, request: pytest.FixtureRequest) -> None:
    head, dash, rest = template.partition("\n---\n")
    both = head + ("\ncluster: {}" if head.startswith("machine") else "\nmachine: {}") + dash + rest
    documents = build(make(), both)
    (answer,) = ask([Question(to_yaml(documents), "cloud", False)], _program("1.13", request))
    assert (not check(documents).errors) is answer.ok, answer.errors
