# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cloud-init of lane kubelet says what the Talos configuration says."""

from __future__ import annotations

import base64
import gzip
import json
import shlex

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet.script import BOOTSTRAP
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Capability, Lane, MeshChoice
from ansible_collections.tgp.gpu.plugins.module_utils.talos.secrets import read
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import parse

from tests.fixtures.talos_nodes import BUNDLE, CONFIG, NODE_KEY, NODE_TOKEN, make, pem

LAMBDA = Capability(cloud="lambda", lanes=(Lane.KUBELET,), user_data_limit=1_000_000)


def files_of(template=None, **changes):
    """The written files by path (content decoded), and the whole cloud-config."""
    text = payload(make(lane=Lane.KUBELET, **changes), template).text
    assert text.startswith("#cloud-config\n")
    document = yaml.safe_load(text)
    contents = {}
    for file in document["write_files"]:
        content = file["content"]
        if file.get("encoding") == "gz+b64":
            content = gzip.decompress(base64.b64decode(content)).decode()
        contents[file["path"]] = content
    return contents, document


def settings(contents):
    return dict(part.split("=", 1) for part in shlex.split(contents["/etc/tgp/node.env"]))


def test_node_env():
    contents, document = files_of(
        mesh=MeshChoice(accept_routes=True, advertise_routes=("10.9.0.0/24",)), login_server="https://hs.example.org"
    )
    assert settings(contents) == {
        "NODE_NAME": "tgp-ml-3f9a2c",
        "NODE_LABELS": "tgp.io/nodepool=ml,tgp.io/provisioned=true,node.kubernetes.io/instance-type=gpu_1x_a10",
        "API_SERVER": "100.64.0.1:6443",
        "KUBELET_VERSION": "1.36.3",
        "KUBELET_EXTRA_ARGS": "",
        "MESH_BACKEND": "tailscale",
        "MESH_HOSTNAME": "tgp-ml-3f9a2c",
        "MESH_LOGIN_SERVER": "https://hs.example.org",
        "MESH_EXTRA_ARGS": "--accept-routes --advertise-routes=10.9.0.0/24",
        "GPU_COUNT": "1",
        "NVIDIA": "1",
        "DRIVER_BRANCH": "580",
        "KERNEL_MODULES": "",
        "CNI": "local",
        "KEY_KUBERNETES": "DE15B14486CD377B9E876E1A234654DA9A296436",
        "KEY_DOCKER": "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
        "KEY_TAILSCALE": "2596A99EAAB33821893C0A79458CA832957F5868",
        "KEY_NVIDIA": "C95B321B61E88C1809C4F759DDCAE044F796ECB0",
    }
    assert document["hostname"] == "tgp-ml-3f9a2c"


@pytest.mark.parametrize(
    ("written", "server", "flags"),
    [
        ("--ssh --hostname other --shields-up", "", "--ssh --shields-up"),
        ("-authkey tskey-of-a-template -login-server https://hs.example.org", "https://hs.example.org", ""),
        ("--advertise-tags tag:a,tag:b --accept-routes=false", "", "--advertise-tags=tag:a,tag:b --accept-routes=false"),
    ],
)
def test_flags_of_the_mesh_client_may_be_written_in_every_form_that_it_takes(written, server, flags):
    template = f"""
machine: {{}}
cluster: {{}}
---
apiVersion: v1alpha1
kind: ExtensionServiceConfig
name: tailscale
environment: ["TS_EXTRA_ARGS={written}"]
"""
    found = settings(files_of(template)[0])
    assert (found["MESH_LOGIN_SERVER"], found["MESH_EXTRA_ARGS"]) == (server, flags)


def test_secrets_stand_in_their_own_files_for_root_alone():
    contents, document = files_of()
    modes = {file["path"]: file["permissions"] for file in document["write_files"]}
    assert all(isinstance(mode, str) for mode in modes.values())
    assert contents["/etc/tgp/authkey"] == NODE_KEY
    assert yaml.safe_load(contents["/etc/tgp/bootstrap-kubeconfig"])["users"][0]["user"] == {"token": NODE_TOKEN}
    for secret in (NODE_KEY, NODE_TOKEN):
        holders = [path for path, content in contents.items() if secret in content]
        assert len(holders) == 1 and modes[holders[0]] == "0600"
    everything = "\n".join(contents.values())
    for talos_only in (BUNDLE["trustdinfo"]["token"], BUNDLE["cluster"]["secret"], BUNDLE["secrets"]["bootstraptoken"]):
        assert talos_only not in everything
    assert modes["/usr/local/sbin/tgp-bootstrap"] == "0700"


def test_tls_is_verified_with_the_kubernetes_ca():
    contents, _document = files_of()
    assert contents["/etc/tgp/ca.crt"] == base64.b64decode(BUNDLE["certs"]["k8s"]["crt"]).decode()
    cluster = yaml.safe_load(contents["/etc/tgp/bootstrap-kubeconfig"])["clusters"][0]["cluster"]
    assert cluster == {"server": "https://127.0.0.1:7445", "certificate-authority": "/etc/kubernetes/pki/ca.crt"}
    assert "insecure" not in BOOTSTRAP and " -k " not in BOOTSTRAP


def test_the_kubelet_configuration_follows_the_cluster_and_the_template():
    template = """
machine:
  kubelet:
    clusterDNS: [10.2.0.53]
    extraConfig: {maxPods: 40, memoryThrottlingFactor: 0.8}
    extraArgs: {v: "4", feature-gates: ["A=true"]}
    extraMounts: [{destination: /var/mnt/a, source: /var/mnt/a, type: bind, options: [bind]}]
  sysctls: {vm.max_map_count: "262144"}
  kernel: {modules: [{name: nvidia}, {name: nfs}]}
  files: [{path: /var/lib/x/token, permissions: 384, op: create, content: abc}]
cluster: {}
"""
    contents, document = files_of(template, secrets=read(CONFIG))
    kubelet = yaml.safe_load(contents["/etc/tgp/kubelet-config.yaml"])
    assert (kubelet["clusterDNS"], kubelet["clusterDomain"]) == (["10.2.0.53"], "cluster.test")
    assert (kubelet["maxPods"], kubelet["memoryThrottlingFactor"], kubelet["serverTLSBootstrap"]) == (40, 0.8, False)
    assert [taint["key"] for taint in kubelet["registerWithTaints"]] == ["gpu-node", "tgp.io/ephemeral", "tgp.io/initializing"]
    found = settings(contents)
    assert (found["KUBELET_EXTRA_ARGS"], found["KERNEL_MODULES"]) == ("--v=4 --feature-gates=A=true", "nfs")
    assert "vm.max_map_count = 262144\n" in contents["/etc/sysctl.d/90-tgp.conf"]
    assert {"path": "/var/lib/x/token", "permissions": "0600", "content": "abc"} in document["write_files"]
    assert ["mkdir", "-p", "-m", "0700", "/var/mnt/a"] in document["runcmd"]
    conflist = json.loads(contents["/etc/tgp/cni.conflist"])
    assert conflist["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "172.31.219.0/24"}]]


def test_cluster_dns_is_the_tenth_address_of_each_service_subnet():
    template = "machine: {}\ncluster: {network: {serviceSubnets: [10.112.0.0/12, fd00:10:96::/112]}}\n"
    kubelet = yaml.safe_load(files_of(template)[0]["/etc/tgp/kubelet-config.yaml"])
    assert kubelet["clusterDNS"] == ["10.112.0.10", "fd00:10:96::a"]


def test_the_nodes_own_bridge_keeps_out_of_the_clusters_subnets():
    template = "machine: {}\ncluster: {network: {podSubnets: [172.16.0.0/12], serviceSubnets: [192.168.0.0/16]}}\n"
    conflist = json.loads(files_of(template)[0]["/etc/tgp/cni.conflist"])
    assert conflist["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.219.219.0/24"}]]
    with pytest.raises(InvalidInput, match="No subnet is free"):
        files_of(template.replace("192.168", "10.0").replace("10.0.0.0/16", "10.0.0.0/8, 192.168.0.0/16"))


def test_without_a_mesh_there_is_no_key():
    contents, _document = files_of(mesh=MeshChoice(backend="none"), auth_key="", endpoint="https://[fd7a::1]:6443")
    assert "/etc/tgp/authkey" not in contents
    assert (settings(contents)["MESH_BACKEND"], settings(contents)["API_SERVER"]) == ("none", "[fd7a::1]:6443")


def test_it_is_small_and_always_the_same():
    first, second = (payload(make(lane=Lane.KUBELET), capability=LAMBDA).text for _ in range(2))
    assert first == second and len(first.encode()) < 16_000


def test_flannel_needs_its_plugin():
    with pytest.raises(InvalidInput, match="flannel_cni_sha256"):
        files_of(cni="flannel")
    contents, _document = files_of(cni="flannel", flannel_cni_url="https://example.org/flannel.tgz", flannel_cni_sha256="a" * 64)
    assert settings(contents)["FLANNEL_CNI_SHA256"] == "a" * 64 and "/etc/tgp/cni.conflist" not in contents
    with pytest.raises(InvalidInput, match="local or flannel"):
        files_of(cni="calico")


@pytest.mark.parametrize(
    "template, word",
    [
        ("machine: {kubelet: {extraArgs: {node-labels: 'a b'}}}\ncluster: {}\n", "extraArgs.node-labels"),
        ("machine: {kubelet: {extraArgs: {v: '$(id)'}}}\ncluster: {}\n", "extraArgs.v"),
        ("machine: {kernel: {modules: [{name: 'a; b'}]}}\ncluster: {}\n", "not a name of a kernel module"),
        ("machine: {kubelet: {image: 'ghcr.io/siderolabs/kubelet:v1.36'}}\ncluster: {}\n", "must be like 1.36.3"),
        ("machine: {}\ncluster: {network: {serviceSubnets: [10.96.0.0/29]}}\n", "10.96.0.0/29 is too small"),
    ],
)
def test_what_ubuntu_cannot_be_told_is_refused(template, word):
    with pytest.raises(InvalidInput, match=word):
        files_of(template)


# ---- payload -------------------------------------------------------------------------------------------------------


def test_lane_talos_is_the_configuration_itself():
    made = payload(make())
    documents = parse(made.text, "payload")
    assert (made.carrier, documents[0]["machine"]["type"], "{{" in made.text) == ("machine-config", "worker", False)
    assert NODE_KEY not in repr(made)


def test_what_is_not_carried_over_is_said():
    template = """
machine:
  registries: {mirrors: {}}
  env: {https_proxy: "http://outgoing.example.test"}
  kubelet: {extraMounts: [{destination: /b, source: /a, type: bind}]}
cluster: {}
---
apiVersion: v1alpha1
kind: KmsgLogConfig
name: log
url: tcp://10.0.0.1:5140
"""
    warnings = payload(make(lane=Lane.KUBELET), template).warnings
    for word in ("machine.env is not carried over", "/a is not mounted at /b", "KmsgLogConfig is not carried over"):
        assert any(word in warning for warning in warnings)
    assert not any("carried over" in warning for warning in payload(make(), template).warnings)


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ("machine: {sysfs: {devices.system.cpu.cpu0.cpufreq.scaling_governor: performance}}", "machine.sysfs"),
        ("machine: {nodeAnnotations: {example.org/a: b}}", "machine.nodeAnnotations"),
        ("machine: {seccompProfiles: [{name: a.json, value: {a: b}}]}", "machine.seccompProfiles"),
        ("machine: {baseRuntimeSpecOverrides: {process: {rlimits: []}}}", "machine.baseRuntimeSpecOverrides"),
        ("machine: {systemDiskEncryption: {state: {provider: luks2}}}", "machine.systemDiskEncryption"),
        ("machine: {kubelet: {credentialProviderConfig: {a: b}}}", "machine.kubelet.credentialProviderConfig"),
        ("machine: {network: {nameservers: [192.0.2.1]}}", "machine.network.nameservers"),
        ("machine: {network: {interfaces: [{interface: eth1, dhcp: true}]}}", "machine.network.interfaces eth1"),
        ("machine: {network: {interfaces: [eth2]}}", "machine.network.interfaces eth2"),
        ("machine: {kernel: {modules: [{name: nbd, parameters: [nbds_max=3]}]}}", "machine.kernel.modules: parameters of nbd"),
        (
            "{apiVersion: v1alpha1, kind: ExtensionServiceConfig, name: tailscale, environment: [TS_TAILSCALED_EXTRA_ARGS=--port=1]}",
            "ExtensionServiceConfig tailscale: TS_TAILSCALED_EXTRA_ARGS",
        ),
        (f"cluster: {{acceptedCAs: [{{crt: {pem('former')}}}]}}", "cluster.acceptedCAs"),
    ],
)
def test_a_field_that_only_talos_acts_upon_is_said_not_to_be_carried_over(patch, field):
    words = f"{field} is not carried over to the Ubuntu machine of lane kubelet."
    assert words in payload(make(lane=Lane.KUBELET, patches=(patch,))).warnings
    assert words not in payload(make(patches=(patch,))).warnings


@pytest.mark.parametrize("path", ["/etc/cri/conf.d/20-customization.part", "/etc/kubernetes/manifests/a.yaml"])
def test_a_file_that_nothing_on_ubuntu_reads_is_said(path):
    patch = f"machine: {{files: [{{path: {path}, op: create, content: '[a]'}}]}}"
    words = f"machine.files: nothing on the Ubuntu machine of lane kubelet reads {path}."
    assert words in payload(make(lane=Lane.KUBELET, patches=(patch,))).warnings


def test_of_the_builtin_template_nothing_is_left_out():
    for changes in ({}, {"talos_version": "1.11.6", "kubernetes_version": "1.33.0"}):
        assert not [one for one in payload(make(lane=Lane.KUBELET, **changes)).warnings if "lane kubelet" in one]


@pytest.mark.parametrize("lane", [Lane.TAKEOVER, Lane.SERVICE])
def test_lanes_without_a_payload_are_refused(lane):
    with pytest.raises(InvalidInput, match="not served yet"):
        payload(make(lane=lane))


def test_the_size_limit_is_the_clouds():
    size = len(payload(make(lane=Lane.KUBELET)).text.encode())
    fits, small, none = (Capability(cloud="x", lanes=(), user_data_limit=limit) for limit in (size, size - 1, None))
    assert payload(make(lane=Lane.KUBELET), capability=fits)
    with pytest.raises(InvalidInput, match=f"has {size} bytes and x carries {size - 1}"):
        payload(make(lane=Lane.KUBELET), capability=small)
    with pytest.raises(InvalidInput, match="carries no user data"):
        payload(make(), capability=none)


def test_a_configuration_that_would_not_boot_is_refused_with_every_reason():
    template = "machine: {systemd: {}, nodeTaints: {a: NoSchedule}}\ncluster: {}\n"
    with pytest.raises(InvalidInput) as caught:
        payload(make(), template)
    assert len(caught.value.problems) == 2


def test_a_kubelet_newer_than_the_cluster_is_refused():
    template = "machine: {kubelet: {image: 'ghcr.io/siderolabs/kubelet:v1.36.3'}}\ncluster: {}\n"
    with pytest.raises(InvalidInput, match="newer than the cluster"):
        payload(make(kubernetes_version="1.35.1"), template)
