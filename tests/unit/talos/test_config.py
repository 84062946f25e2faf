# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every worker configuration must have, whatever the template says."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane, MeshChoice, Taint
from ansible_collections.tgp.gpu.plugins.module_utils.model.names import label_value
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import WORKER, build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.secrets import read
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import at, of_kind, parse, to_yaml
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.rules import EFFECTS, key_problem, may_set, value_problem
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.validate import check
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.talos_nodes import BUNDLE, CONFIG, NODE_KEY, NODE_TOKEN, make

ROOT = pathlib.Path(__file__).parents[3]
SMALL = "machine: {}\ncluster: {}\n"


def env(documents):
    service = of_kind(documents, "ExtensionServiceConfig", "tailscale")
    return dict(entry.split("=", 1) for entry in service["environment"])


def test_the_builtin_template_is_the_shipped_file():
    assert (ROOT / "examples" / "templates" / "worker.yaml").read_text() == WORKER


@pytest.mark.parametrize("template", [None, SMALL, "machine:\ncluster:\n"])
def test_even_the_smallest_template_gives_a_complete_worker(template):
    documents = build(make(), template)
    assert check(documents).errors == ()
    config = documents[0]
    assert at(config, "machine.type") == "worker"
    assert at(config, "machine.token") == "trustd.0123456789abcdef"
    assert at(config, "machine.ca") == {"crt": BUNDLE["certs"]["os"]["crt"]}
    assert at(config, "cluster.ca") == {"crt": BUNDLE["certs"]["k8s"]["crt"]}
    assert at(config, "cluster.token") == NODE_TOKEN
    assert at(config, "cluster.controlPlane.endpoint") == "https://100.64.0.1:6443"
    assert at(config, "machine.kubelet.image") == "ghcr.io/siderolabs/kubelet:v1.36.3"
    assert at(config, "machine.kubelet.nodeIP.validSubnets") == ["100.64.0.0/10"]


def test_d07_nothing_is_left_unrendered_and_no_ca_key_gets_in():
    text = to_yaml(build(make(secrets=read(CONFIG))))
    assert "{{" not in text
    assert not [entry["key"] for entry in BUNDLE["certs"].values() if entry["key"] in text]
    assert "shared.0123456789abcdef" not in text


def test_l19_taints_are_registered_once_each():
    taints = (Taint("gpu-node", "true", "NoSchedule"), Taint("tgp.io/ephemeral", "true", "NoSchedule"))
    own = "[{key: own, effect: NoExecute}, {key: gpu-node, value: x, effect: NoSchedule}]"
    template = f"machine: {{kubelet: {{extraConfig: {{registerWithTaints: {own}}}}}}}\ncluster: {{}}\n"
    spec = make(taints=taints, startup_taints=(Taint("cilium", "", "NoExecute"),))
    assert at(build(spec, template)[0], "machine.kubelet.extraConfig.registerWithTaints") == [
        {"key": "gpu-node", "value": "true", "effect": "NoSchedule"},
        {"key": "tgp.io/ephemeral", "value": "true", "effect": "NoSchedule"},
        {"key": "cilium", "effect": "NoExecute"},
        {"key": "tgp.io/initializing", "effect": "NoSchedule"},
        {"key": "own", "effect": "NoExecute"},
    ]


def test_l19_the_ephemeral_taint_can_be_removed():
    found = at(build(make(taints=(), ephemeral_taint=False))[0], "machine.kubelet.extraConfig.registerWithTaints")
    assert [taint["key"] for taint in found] == ["tgp.io/initializing"]


def test_l19_labels_a_node_may_not_set_are_left_to_the_administrator():
    labels = {
        "node-role.kubernetes.io/gpu": "",
        "app.kubernetes.io/name": "x",
        "team": "ml",
        "topology.kubernetes.io/region": "us-west",
    }
    assert at(build(make(labels=labels), SMALL)[0], "machine.nodeLabels") == {
        "team": "ml",
        "topology.kubernetes.io/region": "us-west",
        "tgp.io/nodepool": "ml",
        "tgp.io/provisioned": "true",
        "node.kubernetes.io/instance-type": "gpu_1x_a10",
    }


def test_s0_25_the_templates_instance_type_wins():
    template = 'machine: {nodeLabels: {node.kubernetes.io/instance-type: "gpu", tgp.io/nodepool: wrong}}\ncluster: {}\n'
    labels = at(build(make(labels={"node.kubernetes.io/instance-type": "gpu_1x_a10"}), template)[0], "machine.nodeLabels")
    assert (labels["node.kubernetes.io/instance-type"], labels["tgp.io/nodepool"]) == ("gpu", "ml")


@pytest.mark.parametrize("version, document", [("1.13.9", True), ("v1.12.0", True), ("1.11.6", False)])
def test_the_host_name_is_the_nodes_name(version, document):
    template = SMALL.replace("machine: {}", "machine: {network: {hostname: other}}")
    if document:
        template += "---\napiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\n"
    documents = build(make(talos_version=version, kubernetes_version="1.34.1"), template)
    found = of_kind(documents, "HostnameConfig")
    assert (found == {"apiVersion": "v1alpha1", "kind": "HostnameConfig", "hostname": "tgp-ml-3f9a2c"}) is document
    assert at(documents[0], "machine.network.hostname") == (None if document else "tgp-ml-3f9a2c")
    assert check(documents, talos_version=version).errors == ()


def test_s0_28_s0_29_the_mesh_service():
    mesh = MeshChoice(accept_routes=True, advertise_routes=("10.9.0.0/24", "10.8.0.0/24"))
    assert env(build(make(mesh=mesh, login_server="https://hs.example.org"))) == {
        "TS_AUTHKEY": NODE_KEY,
        "TS_HOSTNAME": "tgp-ml-3f9a2c",
        "TS_AUTH_ONCE": "true",
        "TS_ACCEPT_DNS": "false",
        "TS_EXTRA_ARGS": "--login-server=https://hs.example.org --accept-routes",
        "TS_ROUTES": "10.9.0.0/24,10.8.0.0/24",
    }


def test_the_templates_mesh_service_is_completed_not_doubled():
    given = "[TS_AUTHKEY=old, TS_DEST_IP=10.0.0.9, TS_EXTRA_ARGS=--accept-routes=false --shields-up]"
    service = f"---\napiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: tailscale\nenvironment: {given}\n"
    documents = build(make(mesh=MeshChoice(accept_routes=True)), SMALL + service)
    assert sum(document.get("kind") == "ExtensionServiceConfig" for document in documents) == 1
    found = env(documents)
    assert (found["TS_AUTHKEY"], found["TS_DEST_IP"]) == (NODE_KEY, "10.0.0.9")
    assert found["TS_EXTRA_ARGS"] == "--accept-routes=false --shields-up"


def test_without_a_mesh_nothing_of_it_is_written():
    documents = build(make(mesh=MeshChoice(backend="none"), auth_key=""))
    assert of_kind(documents, "ExtensionServiceConfig") is None
    assert at(documents[0], "machine.kubelet.nodeIP") is None


@pytest.mark.parametrize(
    "changes, modules, harden",
    [
        ({}, True, False),
        ({"talos_version": "1.12.11", "kubernetes_version": "1.35.0"}, True, True),
        ({"model": "MI300X"}, False, False),
        ({"gpu_count": 0}, False, False),
        ({"gpu_count": None}, False, False),
        ({"lane": Lane.KUBELET}, False, False),
    ],
)
def test_nvidia_modules(changes, modules, harden):
    config = build(make(**changes))[0]
    names = [module["name"] for module in at(config, "machine.kernel.modules") or ()]
    assert names == (["nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset"] if modules else [])
    assert at(config, "machine.sysctls") == (
        {"kernel.kexec_load_disabled": "1", **({"net.core.bpf_jit_harden": "1"} if harden else {})} if modules else None
    )


def test_the_clusters_own_network_beats_the_template():
    found = at(build(make(secrets=read(CONFIG), endpoint=""))[0], "cluster")
    assert found["network"] == {"dnsDomain": "cluster.test", "podSubnets": ["10.1.0.0/16"], "serviceSubnets": ["10.2.0.0/16"]}
    assert found["controlPlane"]["endpoint"] == "https://10.0.0.1:6443"


def test_s0_21_the_image_is_what_installs():
    image = "factory.talos.dev/metal-installer/" + "e" * 64 + ":v1.13.9"
    assert at(build(make(installer_image=image, install_disk="/dev/vda"))[0], "machine.install") == {
        "image": image,
        "disk": "/dev/vda",
    }


def test_shared_parts_of_a_template_stay_apart():
    config = build(make(), "machine: {nodeLabels: &x {a: b}, nodeAnnotations: *x}\ncluster: {}\n")[0]
    assert at(config, "machine.nodeAnnotations") == {"a": "b"}
    assert at(config, "machine.nodeLabels")["tgp.io/nodepool"] == "ml"


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"endpoint": ""}, "endpoint"),
        ({"endpoint": "http://10.0.0.1:6443"}, "https://"),
        ({"bootstrap_token": ""}, "bootstrap token"),
        ({"auth_key": ""}, "enrolment key"),
        ({"login_server": "hs.example.org"}, "login server"),
    ],
)
def test_an_incomplete_node_is_refused(changes, word):
    with pytest.raises(InvalidInput, match=word):
        build(make(**changes))


@pytest.mark.parametrize(
    "template, word",
    [
        ("kind: HostnameConfig\napiVersion: v1alpha1\n", "no machine configuration"),
        ("machine: [1]\ncluster: {}\n", "machine"),
        ("machine: {type: controlplane}\ncluster: {}\n", "must be a worker"),
        ("machine: {ca: {crt: x, key: y}}\ncluster: {}\n", "machine.ca.key"),
        ("machine: {}\ncluster: {ca: {key: y}}\n", "cluster.ca.key"),
        ("machine: {kubelet: {extraConfig: {registerWithTaints: {a: b}}}}\ncluster: {}\n", "list of taints"),
        ("", "no machine configuration"),
    ],
)
def test_a_template_that_cannot_give_a_worker_is_refused(template, word):
    with pytest.raises(InvalidInput, match=word):
        build(make(), template)


# ---- labels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, allowed",
    [
        ("tgp.io/nodepool", True),
        ("plain", True),
        ("nvidia.com/gpu.present", True),
        ("kubernetes.io/hostname", True),
        ("node.kubernetes.io/instance-type", True),
        ("kubelet.kubernetes.io/x", True),
        ("topology.kubernetes.io/zone", True),
        ("node-role.kubernetes.io/gpu", False),
        ("node-restriction.kubernetes.io/x", False),
        ("app.kubernetes.io/name", False),
        ("topology.kubernetes.io/rack", False),
        ("scheduling.k8s.io/x", False),
        ("notkubernetes.io/x", True),
    ],
)
def test_l19_what_a_kubelet_may_set(key, allowed):
    assert may_set(key) is allowed


@given(st.text(max_size=90))
def test_a_label_made_of_any_text_is_taken(text):
    assert value_problem(label_value(text)) == ""


names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
keys = st.builds(
    lambda domain, name: f"{domain}/{name}" if domain else name, st.sampled_from(["", "tgp.io", "a.kubernetes.io"]), names
)


@given(
    st.dictionaries(keys, names, max_size=5),
    st.lists(st.builds(Taint, keys, st.just("") | names, st.sampled_from(EFFECTS)), max_size=4),
)
def test_any_labels_and_taints_come_out_as_they_went_in(labels, taints):
    documents = build(make(labels=labels, taints=tuple(taints), instance_type=""))
    assert check(documents).errors == ()
    config = parse(to_yaml(documents), "text")[0]
    found = at(config, "machine.nodeLabels")
    assert {key: found[key] for key in labels if may_set(key)} == {key: value for key, value in labels.items() if may_set(key)}
    assert all(key_problem(key) == "" for key in labels)
    registered = {
        (one["key"], one["effect"]): one.get("value", "") for one in at(config, "machine.kubelet.extraConfig.registerWithTaints")
    }
    for taint in reversed(taints):
        assert (taint.key, taint.effect) in registered
    first = {(taint.key, taint.effect): taint.value for taint in reversed(taints)}
    assert {pair: registered[pair] for pair in first} == first
