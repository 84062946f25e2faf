# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals: each says the field, what is wrong, and what to write instead."""

from __future__ import annotations

import contextlib
import copy
import pathlib

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import WORKER, build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.nvidia import image_problems
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import parse
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.validate import (
    MISSING_TEMPLATE,
    check,
    problems,
    template_problems,
    template_result,
)

from tests.fixtures.talos_nodes import make, pem

ROOT = pathlib.Path(__file__).parents[3]
SEED = yaml.safe_load((ROOT / "tests" / "fixtures" / "seeds" / "s0-nodeclass.yaml").read_text())["spec"]["talosConfig"]
INSTALLER = "factory.talos.dev/metal-installer/" + "e" * 64 + ":v1.13.9"


def changed(path, value, documents=None):
    """The documents of a good node with one field set (or removed: value ...)."""
    documents = documents or build(make())
    part = documents[0]
    *way, last = path.split(".")
    for key in way:
        part = part.setdefault(key, {})
    if value is ...:
        part.pop(last)
    else:
        part[last] = value
    return documents


def test_s0_24_the_seeds_template_is_refused_for_exactly_these_reasons():
    found = template_problems(SEED["machineConfigTemplate"], SEED["image"])
    assert [sentence.split(" ")[0:4] for sentence in found] == [
        ["Talos", "has", "no", "field"],
        ["machine.files[0]:", "/etc/tailscale/authkey", "cannot", "be"],
        ["machine.files[1]:", "/etc/systemd/system/tailscaled.service", "cannot", "be"],
        ["talosConfig.image:", "ghcr.io/siderolabs/talos:v1.10.5", "is", "the"],
    ]
    assert "machine.systemd" in found[0] and "ExtensionServiceConfig" in found[0]
    assert "mesh key" in found[1] and "factory.talos.dev" in found[3]


@pytest.mark.parametrize("template", [None, "", "  \n"])
def test_s0_16_a_missing_template_has_its_own_sentence(template):
    assert template_problems(template) == [MISSING_TEMPLATE]


@pytest.mark.parametrize("version", ["1.10.9", "1.11.6", "1.12.11", "1.13.9", "1.14.0"])
def test_d08_every_shipped_template_is_good_for_every_version(version):
    for path in (ROOT / "examples" / "templates").glob("*.yaml"):
        assert template_result(path.read_text(), INSTALLER.replace("1.13.9", version)) == template_result(
            WORKER, talos_version=version
        )
        assert template_problems(path.read_text(), talos_version=version) == []


@pytest.mark.parametrize("mode", ["metal", "cloud", "container"])
def test_a_good_configuration_has_nothing_against_it(mode):
    result = check(build(make(install_disk="/dev/vda", installer_image=INSTALLER)), mode=mode, kubernetes_version="1.36.3")
    assert (result.errors, result.warnings) == ((), ())


@pytest.mark.parametrize(
    "path, value, word",
    [
        ("machine", ..., "machine is missing"),
        ("cluster", ..., "cluster is missing"),
        ("machine.type", ..., "machine.type is missing"),
        ("machine.type", "controlplane", "must be a worker"),
        ("machine.token", ..., "machine.token is missing"),
        ("machine.ca", ..., "machine.ca.crt is missing"),
        ("machine.ca", {"crt": pem("x"), "key": "a"}, "machine.ca.key"),
        ("cluster.ca", {"crt": pem("x"), "key": "a"}, "cluster.ca.key"),
        ("cluster.ca", {"crt": "nonsense"}, "cluster.ca.crt must be the base64"),
        ("cluster.token", ..., "cluster.token is missing"),
        ("cluster.ca", ..., "cluster.ca.crt is missing"),
        ("cluster.etcd", {}, "cluster.etcd belongs to control planes"),
        ("cluster.apiServer", {}, "cluster.apiServer"),
        ("cluster.secretboxEncryptionSecret", "x", "secretboxEncryptionSecret"),
        ("cluster.controlPlane.endpoint", "http://a:6443", "must start with https://"),
        ("cluster.controlPlane.endpoint", "https://a:6443/path", "without a path"),
        ("cluster.secret", ..., "cluster.discovery is on"),
        ("cluster.network.podSubnets", ["10.0.0.0"], "is not a subnet"),
        ("cluster.network.podSubnets", 7, "must be a list"),
        ("cluster.network.dnsDomain", "x y", "is not a DNS name"),
        ("machine.features.hostDNS", {"forwardKubeDNSToHost": True}, "needs machine.features.hostDNS.enabled"),
        ("machine.network", {"kubespan": {"enabled": True, "mtu": 1000}}, "at least 1280"),
        ("persist", False, "persist: false"),
        ("machine.features.kubernetesTalosAPIAccess", {"enabled": True}, "control planes only"),
        ("machine.kubelet.image", ..., "machine.kubelet.image is missing"),
        ("machine.kubelet.image", "ghcr.io/siderolabs/kubelet", "has no version"),
        ("machine.kubelet.image", "ghcr.io/siderolabs/kubelet:v1.29.0", "runs Kubernetes 1.31 to 1.36"),
        ("machine.kubelet.extraArgs", {"kubeconfig": "x"}, "set by Talos itself"),
        ("machine.kubelet.extraConfig.authentication", {}, "set by Talos itself"),
        ("machine.kubelet.extraConfig.registerWithTaints", [{"key": "a", "effect": "Never"}], "effect must be"),
        ("machine.kubelet.extraConfig.registerWithTaints", [{"key": "a b", "effect": "NoSchedule"}], "not a label key"),
        ("machine.kubelet.extraConfig.registerWithTaints", [{"key": "a", "value": True, "effect": "NoSchedule"}], "in quotes"),
        ("machine.kubelet.extraConfig.registerWithTaints", ["a=b:NoSchedule"], "must have key, value and effect"),
        ("machine.kubelet.nodeIP.validSubnets", ["100.64.0.0"], "is not a subnet"),
        ("machine.nodeLabels", {"node-role.kubernetes.io/gpu": "x"}, "may not give itself this label"),
        ("machine.nodeLabels", {"a": "x y"}, "not a label value"),
        ("machine.nodeLabels", {"a": 1}, "must be text in quotes"),
        ("machine.nodeLabels", {"UPPER.case/": "x"}, "not a label key"),
        ("machine.nodeAnnotations", {"talos.dev/owned-labels": "x"}, "kept by Talos"),
        ("machine.nodeAnnotations", {"a": "x" * 300_000}, "256 KiB"),
        ("machine.nodeTaints", {"a": "NoSchedule"}, "machine.nodeTaints"),
        ("machine.files", [{"path": "/etc/x", "op": "create", "content": "a"}], "below /var only"),
        ("machine.files", [{"path": "/etc/cri/conf.d/20-nvidia.part", "op": "create"}], "20-customization.part"),
        ("machine.files", [{"path": "var/x"}], "must be absolute"),
        ("machine.files", [{"path": "/var/../etc/x"}], "climb out"),
        ("machine.install", {"image": "ghcr.io/siderolabs/installer:v1.13.9"}, "no system extensions"),
        ("machine.install", {"disk": "/dev/sda", "diskSelector": {"type": "ssd"}}, "one of them"),
        ("machine.sysctls", {"vm.x": 1}, "must be text in quotes"),
    ],
)
def test_refusals(path, value, word):
    found = problems(changed(path, value))
    assert any(word in sentence for sentence in found), found
    assert all(sentence.endswith(".") for sentence in found)


@pytest.mark.parametrize(
    "path, value",
    [
        ("machine.files", [{"path": "/etc/cri/conf.d/20-customization.part", "op": "create", "content": "[x]"}]),
        ("machine.files", [{"path": "/var/lib/x", "op": "create", "content": "x", "permissions": 384}]),
        ("machine.files", [{"path": "/etc/hosts", "op": "overwrite", "content": "x"}]),
        ("machine.kubelet.nodeIP.validSubnets", ["!10.0.0.0/8", "fd00::/8"]),
        ("machine.acceptedCAs", [{"crt": pem("x")}]),
        ("cluster.controlPlane.endpoint", "https://[fd7a::1]:6443"),
        ("machine.kubelet.extraArgs", {"v": ["1", "2"]}),
    ],
)
def test_what_is_fine(path, value):
    assert problems(changed(path, value)) == []


@pytest.mark.parametrize(
    "path, value",
    [
        ("persist", True),
        ("machine.disks", []),
        ("machine.env", {"a": "b"}),
        ("machine.registries", {"mirrors": {}}),
        ("machine.install", {"extensions": [{"image": "x"}]}),
    ],
)
def test_outdated_fields_are_warnings(path, value):
    result = check(changed(path, value))
    assert result.errors == () and len(result.warnings) == 1 and "outdated" in result.warnings[0]


def test_modes():
    assert problems(build(make()), mode="metal") == [
        "machine.install.disk is missing: a machine that installs Talos must know its disk (or diskSelector)."
    ]
    assert len(problems(changed("machine.features", ...), mode="container")) == 2
    with pytest.raises(InvalidInput, match="metal, cloud or container"):
        check(build(make()), mode="vm")


@pytest.mark.parametrize(
    "extra, word",
    [
        ({"kind": "HostnameConfig", "apiVersion": "v1alpha1", "hostname": "b"}, "occurs twice"),
        ({"version": "v1alpha1"}, "several machine configurations"),
        ({"kind": "ExtensionServiceConfig", "apiVersion": "v1alpha1", "name": "x"}, "needs an environment entry"),
        ({"kind": "HostnameConfig", "apiVersion": "v1alpha1"}, "hostname is missing"),
        ({"kind": "ExtensionServiceConfig", "apiVersion": "v1alpha1", "name": "", "environment": ["a=b"]}, "name is missing"),
        ({"kind": "NoSuchConfig", "apiVersion": "v1alpha1"}, "no document of kind 'NoSuchConfig'"),
    ],
)
def test_between_documents(extra, word):
    assert any(word in sentence for sentence in problems([*build(make()), extra]))


def test_versions():
    documents = build(make())
    assert "HostnameConfig needs Talos 1.12 or newer, this is 1.11." in problems(documents, talos_version="1.11.6")
    assert any("not supported" in sentence for sentence in problems(documents, talos_version="1.9.0"))
    assert any("not supported" in sentence for sentence in problems(documents, talos_version="latest"))
    assert any("newer than what" in sentence for sentence in check(documents, talos_version="1.99.0").warnings)
    assert any("newer than the cluster" in sentence for sentence in check(documents, kubernetes_version="1.35.9").errors)
    assert check(build(make(kubernetes_version="1.32.0")), kubernetes_version="1.36.3").errors != ()


@pytest.mark.parametrize(
    "image, word",
    [
        ("ghcr.io/siderolabs/talos:v1.10.5", "inside a container"),
        ("registry.example.org/siderolabs/talos", "inside a container"),
        ("ghcr.io/siderolabs/installer:v1.13.9", "no system extensions"),
        ("factory.talos.dev/metal-installer/abc:v1.13.9", "not an installer of the Image Factory"),
        (INSTALLER.rpartition(":")[0], "has no version"),
        (INSTALLER.replace("v1.13.9", "latest"), "moves with each release"),
    ],
)
def test_s0_21_images(image, word):
    assert [word in sentence for sentence in image_problems(image)] == [True]
    assert f"talosConfig.image: {image}" in template_problems(WORKER, image)[-1]


@pytest.mark.parametrize("image", [INSTALLER, INSTALLER.replace("metal-", ""), "registry.example.org/talos/gpu-installer:v1.13.9"])
def test_good_images(image):
    assert template_problems(WORKER, image) == []


@pytest.mark.parametrize(
    "template, word",
    [
        ("{{if .X}}", "Go construct"),
        ("machine: {}\ncluster: {}\nx: {{.Nope}}\n", "'Nope' is unknown"),
        ("machine: [", "not valid YAML"),
        ("machine: {}\nmachine: {}\ncluster: {}\n", "a second time"),
        ("just text", "not a mapping"),
        ("machine: {nodeLabels: {index: {{.NodeIndex}}}}\ncluster: {}\n", "machine.nodeLabels.index must be text in quotes"),
    ],
)
def test_templates_that_cannot_be_tried_say_why(template, word):
    assert any(word in sentence for sentence in template_problems(template))


def test_a_template_may_ask_for_the_disk_and_the_image_by_name():
    template = "machine: {install: {disk: {{ InstallDisk }}, image: {{.InstallerImage}}}}\ncluster: {}\n"
    assert template_problems(template, INSTALLER) == []
    assert template_problems("machine: {install: {wipe: true}}\ncluster: {}\n") == problems(build(make()), mode="metal")


# ---- odd things in every place -------------------------------------------------------------------------------------

ODD = (None, "", "x y", 7, 1.5, True, [], ["a"], [None], [[]], {}, {"a": "b"}, {1: 2})


def _places(value, way=()):
    if way:
        yield way
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _places(child, (*way, key))


def _damaged(documents):
    for way in _places(documents):
        for value in ODD:
            changed = copy.deepcopy(documents)
            part = changed
            for key in way[:-1]:
                part = part[key]
            part[way[-1]] = copy.deepcopy(value)
            yield changed


RICH = """
machine:
  network: {hostname: x, kubespan: {enabled: true}}
  install: {disk: /dev/vda, image: x}
  kernel: {modules: [{name: nvidia}]}
  files: [{path: /var/x, op: create, content: y}]
  sysctls: {a: b}
  nodeAnnotations: {a: b}
  nodeTaints: {a: NoSchedule}
  kubelet: {extraArgs: {v: "1"}, extraConfig: {registerWithTaints: [{key: a, effect: NoSchedule}]}, extraMounts: [{source: /a}]}
  acceptedCAs: [{crt: x}]
cluster: {network: {podSubnets: [10.0.0.0/8]}, discovery: {registries: {service: {disabled: true}}}}
---
{apiVersion: v1alpha1, kind: ExtensionServiceConfig, name: tailscale, environment: [TS_EXTRA_ARGS=--ssh], configFiles: [{content: a}]}
---
{apiVersion: v1alpha1, kind: HostnameConfig, auto: stable}
"""


def test_nothing_odd_in_a_configuration_crashes_the_check():
    for documents in _damaged([*build(make()), *parse(RICH, "rich")]):
        if all(isinstance(document, dict) for document in documents):
            check(documents, mode="metal")
            check(documents, mode="container")


def test_nothing_odd_in_a_template_crashes_its_check_or_its_payload():
    for documents in _damaged(parse(RICH, "rich")):
        text = yaml.safe_dump_all(documents)
        template_problems(text)
        for lane in (Lane.TALOS, Lane.KUBELET):
            with contextlib.suppress(InvalidInput):
                payload(make(lane=lane), text)


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("RawVolumeConfig", (1, 11)),
        ("RegistryMirrorConfig", (1, 12)),
        ("LinkConfig", (1, 12)),
        ("StaticHostConfig", (1, 12)),
        ("VRFConfig", (1, 13)),
    ],
)
def test_a_document_is_refused_where_the_release_does_not_know_it_yet(kind, first):
    documents = [*build(make()), {"apiVersion": "v1alpha1", "kind": kind, "name": "one"}]
    words = f"{kind} needs Talos {first[0]}.{first[1]} or newer"
    for minor in range(10, 15):
        errors = " ".join(check(documents, talos_version=f"1.{minor}.0").errors)
        assert (words in errors) is (minor < first[1]), minor


@pytest.mark.parametrize(("version", "refused"), [("1.12.11", True), ("1.13.0", False)])
def test_a_kubelet_argument_that_is_a_list_is_of_talos_1_13(version, refused):
    documents = build(make(kubernetes_version="1.34.0"), "machine: {kubelet: {extraArgs: {v: ['2']}}}\ncluster: {}\n")
    errors = " ".join(check(documents, talos_version=version).errors)
    assert ("machine.kubelet.extraArgs.v is a list" in errors) is refused


def test_the_endpoints_of_kubespan_are_written_as_talos_calls_them_and_not_as_its_schema_does():
    right = {"apiVersion": "v1alpha1", "kind": "KubeSpanEndpointsConfig", "extraAnnouncedEndpoints": ["192.0.2.1:51820"]}
    assert check([*build(make()), right]).errors == ()
    assert check([*build(make()), {**right, "extra": 1}]).errors == ("KubeSpanEndpointsConfig: Talos has no field extra.",)
    (wrong,) = check([*build(make()), {**right, "kind": "KubeSpanEndpoints"}]).errors
    assert "Talos knows no document of kind 'KubeSpanEndpoints'. Did you mean KubeSpanEndpointsConfig?" in wrong


@pytest.mark.parametrize("path", ["/var/lib/a", "/etc/a", "/etc/cri/conf.d/20-customization.part"])
def test_a_file_needs_an_operation_because_talos_has_no_default(path):
    template = f"machine: {{files: [{{path: {path}, permissions: 384, content: '[a]'}}]}}\ncluster: {{}}\n"
    found = check(build(make(), template)).errors
    assert found == (
        "machine.files[0].op is missing: write create, overwrite or append; Talos has no default and would fail at boot.",
    )


# what `talosctl gen config` writes beside secrets and comments, up to the contract of Talos 1.11
GENERATED = """
version: v1alpha1
debug: false
persist: true
machine:
  type: worker
  kubelet: {defaultRuntimeSeccompProfileEnabled: true, disableManifestsDirectory: true}
  network: {}
  install: {disk: /dev/sda, wipe: false}
  registries: {}
  features:
    rbac: true
    stableHostname: true
    apidCheckExtKeyUsage: true
    diskQuotaSupport: true
    kubePrism: {enabled: true, port: 7445}
    hostDNS: {enabled: true, forwardKubeDNSToHost: true}
cluster:
  network: {dnsDomain: cluster.local, podSubnets: [10.244.0.0/16], serviceSubnets: [10.96.0.0/12]}
  discovery: {enabled: true, registries: {kubernetes: {disabled: true}, service: {}}}
"""


@pytest.mark.parametrize("version", ["1.10.9", "1.11.6", "1.12.11", "1.13.9", "1.14.0"])
def test_a_worker_configuration_that_talosctl_made_is_a_template(version):
    documents = build(make(talos_version=version, kubernetes_version="1.33.0"), GENERATED)
    found = check(documents, talos_version=version, mode="metal")
    assert found.errors == ()
    assert "machine.features.rbac is outdated: it is always on." in found.warnings
    # beside the document with the host name Talos 1.12 and newer refuse it
    assert ("stableHostname" in documents[0]["machine"]["features"]) is (version < "1.12")


def test_a_log_goes_to_an_address():
    template = "machine: {logging: {destinations: [{endpoint: 'udp://10.0.0.1:5044', format: json_lines}]}}\ncluster: {}\n"
    assert check(build(make(), template)).errors == ()
    assert check(build(make(), template.replace("json_lines", "xml"))).errors


@pytest.mark.parametrize(
    ("field", "document"),
    [
        ("machine: {features: {stableHostname: true}}", "HostnameConfig"),
        ("machine: {network: {kubespan: {enabled: false}}}", "KubeSpanConfig"),
        ("machine: {network: {nameservers: [192.0.2.1]}}", "ResolverConfig"),
        ("machine: {network: {searchDomains: [a.test]}}", "ResolverConfig"),
        ("machine: {network: {disableSearchDomain: true}}", "ResolverConfig"),
        ("machine: {time: {servers: [192.0.2.1]}}", "TimeSyncConfig"),
        ("machine: {time: {disabled: true}}", "TimeSyncConfig"),
        ("machine: {time: {bootTimeout: 2m}}", "TimeSyncConfig"),
    ],
)
def test_a_field_and_the_document_that_replaces_it_exclude_each_other(field, document):
    patch = f"apiVersion: v1alpha1\nkind: {document}\n"
    alone = build(make(patches=(field,) if document != "HostnameConfig" else ()))
    both = build(make(patches=(field, *((patch,) if document != "HostnameConfig" else ()))))
    words = f"and {document} exclude each other; write {document} only."
    assert any(words in one for one in check(both).errors)
    assert not any(words in one for one in check(alone).errors)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            "machine: {network: {interfaces: [{interface: eth0, vip: {ip: 10.0.0.9}}]}}\ncluster: {}\n",
            "eth0: only control planes share",
        ),
        (
            "machine: {network: {interfaces: [{interface: eth0, vlans: [{vlanId: 2, vip: {ip: 10.0.0.9}}]}]}}\ncluster: {}\n",
            "(vip)",
        ),
        (
            "machine: {}\ncluster: {discovery: {enabled: true, registries: {service: {endpoint: 'https://d.test/path'}}}}\n",
            "without a path",
        ),
        ("machine: {}\ncluster: {discovery: {enabled: true, registries: {service: {endpoint: d.test}}}}\n", "must be https://host"),
    ],
)
def test_more_that_talos_refuses_of_a_worker(template, words):
    (found,) = check(build(make(), template)).errors
    assert words in found


def test_a_discovery_service_of_ones_own_is_taken():
    template = "machine: {}\ncluster: {discovery: {enabled: true, registries: {service: {endpoint: 'https://d.test:8443/'}}}}\n"
    assert check(build(make(), template)).errors == ()


def test_an_image_of_a_registry_that_numbers_otherwise_tells_no_release():
    assert template_problems(WORKER, "registry.example.org/installer:2026.11") == []
    assert template_problems(WORKER, "registry.example.org/installer:v1.9.5") != []


def test_an_outdated_feature_is_still_true_or_false():
    template = "machine: {features: {rbac: 'on', stableHostname: null}}\ncluster: {}\n"
    assert check(build(make(), template)).errors == (
        "machine.features.rbac must be true or false; it is outdated: it is always on.",
    )
