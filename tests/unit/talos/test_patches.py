# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patches and registry mirrors of a class, and what they may not touch."""

from __future__ import annotations

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import MeshChoice
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build, mirror_problems
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import Document, at, of_kind
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.validate import check

from tests.fixtures.talos_nodes import make

SERVICE = "{apiVersion: v1alpha1, kind: ExtensionServiceConfig, name: tailscale"


def patched(*patches: str, **facts: object) -> list[Document]:
    return build(make(patches=patches, **facts))


def test_patches_are_laid_over_everything_one_after_the_other() -> None:
    config = patched(
        "machine: {sysctls: {a.b: '1'}, kernel: {modules: [{name: zfs}]}}",
        "machine: {sysctls: {a.b: '2', kernel.kexec_load_disabled: {$patch: delete}}, kernel: {modules: [{name: nvidia_drm, $patch: delete}]}}",
    )[0]
    assert at(config, "machine.sysctls") == {"a.b": "2"}
    assert [one["name"] for one in at(config, "machine.kernel.modules")] == ["nvidia", "nvidia_uvm", "nvidia_modeset", "zfs"]


def test_a_patch_may_use_the_variables_of_the_template_in_both_forms() -> None:
    labels = at(
        patched('machine: {nodeLabels: {one: "{{ NodeName }}", two: "{{.NodePool}}", three: "{{ node_index }}"}}')[0],
        "machine.nodeLabels",
    )
    assert (labels["one"], labels["two"], labels["three"]) == ("tgp-ml-3f9a2c", "ml", "0")
    with pytest.raises(InvalidInput, match="NodeNaem"):
        patched("machine: {nodeLabels: {one: '{{ NodeNaem }}'}}")


def test_a_patch_brings_and_takes_whole_documents() -> None:
    document = "{apiVersion: v1alpha1, kind: KmsgLogConfig, name: far, url: 'tcp://192.0.2.1:5000/'"
    documents = patched(document + "}")
    assert of_kind(documents, "KmsgLogConfig", "far") is not None and check(documents).errors == ()
    assert of_kind(patched(document + "}", document + ", $patch: delete}"), "KmsgLogConfig") is None


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ("machine: {token: zzzzzz.0123456789abcdef}", "machine.token"),
        ("machine: {type: controlplane}", "machine.type"),
        ("machine: {ca: {key: LS0tLS1CRUdJTg==}}", "machine.ca"),
        ("cluster: {ca: {key: LS0tLS1CRUdJTg==}}", "cluster.ca"),
        ("cluster: {token: zzzzzz.0123456789abcdef}", "cluster.token"),
        ("cluster: {secret: {$patch: delete}}", "cluster.secret"),
        ("cluster: {controlPlane: {endpoint: 'https://10.0.0.9:6443'}}", "cluster.controlPlane.endpoint"),
        ("machine: {nodeLabels: {tgp.io/nodepool: other}}", "machine.nodeLabels.tgp.io/nodepool"),
        ("machine: {nodeLabels: {tgp.io/claim: other}}", "machine.nodeLabels.tgp.io/claim"),
        ("machine: {kubelet: {extraConfig: {registerWithTaints: {$patch: delete}}}}", "registerWithTaints: tgp.io/initializing"),
        (
            "machine: {kubelet: {extraConfig: {registerWithTaints: [{key: gpu-node, $patch: delete}]}}}",
            "registerWithTaints: gpu-node",
        ),
        ("{apiVersion: v1alpha1, kind: HostnameConfig, hostname: other}", "HostnameConfig.hostname"),
        ("{apiVersion: v1alpha1, kind: HostnameConfig, $patch: delete}", "HostnameConfig.hostname"),
        (f"{SERVICE}, $patch: delete}}", "TS_AUTHKEY"),
        (f"{SERVICE}, environment: [TS_HOSTNAME=other]}}", "TS_HOSTNAME"),
    ],
)
def test_no_patch_changes_what_makes_the_node_ours(patch: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        patched(patch)
    assert field in str(caught.value) and "zzzzzz" not in str(caught.value)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("machine: {sysctls: {nothere: {$patch: delete}}}", r"talosConfig.patches\[0\].*no machine.sysctls.nothere"),
        ("machine: {kernel: {modules: [{name: nothere, $patch: delete}]}}", "with name nothere"),
        ("machine: {kernel: {modules: [{$patch: delete}]}}", "by which the entry"),
        (
            "machine: {network: {interfaces: [{interface: eth0, dhcp: {$patch: delete}}]}}",
            "machine.network.interfaces: Talos deletes whole entries of a list",
        ),
        (
            "machine: {network: {interfaces: [{interface: wg-tgp, wireguard: {peers: [{publicKey: x, $patch: delete}]}}]}}",
            "machine.network.interfaces: Talos deletes whole entries of a list",
        ),
        ("machine: {certSANs: {a: b}}", "machine.certSANs is a list, and the patch has a mapping"),
        ("[{op: add, path: /machine/token, value: x}]", "RFC 6902"),
        ("version: v1alpha1\n$patch: delete", "as a whole"),
        ("{apiVersion: v1alpha1, kind: KmsgLogConfig, name: far, $patch: delete}", "there is none"),
        ("{kind: KmsgLogConfig, name: far}", "needs apiVersion"),
        ("machine: {a: b, a: c}", "a second time"),
    ],
)
def test_a_patch_that_cannot_be_laid_is_refused(patch: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        patched(patch)


@pytest.mark.parametrize(
    "text",
    [
        '[{"op": "add", "path": "/machine/sysctls/a", "value": "1"}]',
        "- op: remove\n  path: /machine/install\n",
        "# ours\n\n---\n  - {op: add, path: /machine/sysctls/a, value: '1'}\n",
    ],
)
def test_a_json_patch_is_refused_with_the_reason_and_the_way_out(text: str) -> None:
    with pytest.raises(InvalidInput, match="RFC 6902.*one document only") as caught:
        build(make(patches=(text,)))
    assert "strategic merge patch" in str(caught.value)


def test_what_a_patch_spoils_is_found_like_anything_else() -> None:
    documents = patched("machine: {systemd: {}, nodeTaints: {a: 'b:NoSchedule'}, nodeLabels: {node-role.kubernetes.io/gpu: x}}")
    assert len(check(documents).errors) == 3


@pytest.mark.parametrize("release", ["1.10.9", "1.11.6", "1.12.11", "1.13.9"])
def test_registry_mirrors_are_written_as_the_release_reads_them(release: str) -> None:
    mirrors = {"docker.io": ("https://mirror.example.test", "http://10.0.0.5:5000"), "*": ("https://all.example.test",)}
    documents = build(
        make(talos_version=release, kubernetes_version="1.33.0", registry_mirrors=mirrors, mesh=MeshChoice(backend="none"))
    )
    found = of_kind(documents, "RegistryMirrorConfig", "docker.io")
    if release < "1.12":
        assert found is None and at(documents[0], "machine.registries.mirrors")["*"] == {"endpoints": ["https://all.example.test"]}
    else:
        assert found is not None and found["endpoints"] == [{"url": "https://mirror.example.test"}, {"url": "http://10.0.0.5:5000"}]
    assert check(documents, talos_version=release).errors == ()


def test_a_template_that_has_the_old_form_keeps_it() -> None:
    template = "machine: {registries: {mirrors: {ghcr.io: {endpoints: ['https://a.example.test']}}}}\ncluster: {}\n"
    documents = build(make(registry_mirrors={"docker.io": ("https://b.example.test",)}), template)
    assert set(at(documents[0], "machine.registries.mirrors")) == {"ghcr.io", "docker.io"}
    assert of_kind(documents, "RegistryMirrorConfig") is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"https://docker.io": ("https://a.test",)}, "as images name it"),
        ({"docker.io": ()}, "no mirror"),
        ({"docker.io": ("a.test",)}, "not an address"),
        ({"docker.io": ("https://user:a-long-password-of-tests@a.test",)}, "password"),
    ],
)
def test_mirrors_that_cannot_be_used_are_refused(given: dict[str, tuple[str, ...]], words: str) -> None:
    (problem,) = mirror_problems(given)
    assert words in problem and "a-long-password" not in problem
    with pytest.raises(InvalidInput):
        build(make(registry_mirrors=given))
