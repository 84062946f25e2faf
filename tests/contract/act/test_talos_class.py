# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a class says of its Talos image, patches and mirrors: refused before anything is rented, and on the machine as it was meant."""

from __future__ import annotations

import base64
import pathlib
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.talos.secrets import read

from tests.fixtures.talos_nodes import pem

from .rig import Rig

NVIDIA = ["siderolabs/nvidia-container-toolkit-production", "siderolabs/nvidia-open-gpu-kernel-modules-production"]


def image(*extensions: str, **customization: t.Any) -> dict[str, t.Any]:
    return {"customization": {**customization, "systemExtensions": {"officialExtensions": sorted(extensions)}}}


@pytest.mark.parametrize(
    ("talos", "words"),
    [
        ({"schematic": image("siderolabs/tailscale", "siderolabs/nonfree-kmod-nvidia")}, "nonfree-kmod-nvidia-lts"),
        ({"schematic": image("siderolabs/tailscale", NVIDIA[0])}, "without kernel modules"),
        ({"schematic": image(*NVIDIA)}, "could not enter the mesh"),
        ({"schematic": image("siderolabs/tailscale", extraKernelArgs=["talos.config.inline=KLUv"])}, "secrets of the cluster"),
        ({"schematic": {"customization": {"extensions": []}}}, "customization.extensions"),
        (
            {"schematic": image("siderolabs/tailscale"), "image": f"factory.talos.dev/metal-installer/{'0' * 64}:v1.13.9"},
            "two images",
        ),
        ({"patches": ["machine: {systemd: {}}"]}, "machine.systemd"),
        ({"patches": ["machine: {nodeTaints: {a: 'b:NoSchedule'}}"]}, "machine.nodeTaints"),
        ({"patches": ["machine: {nodeLabels: {node-role.kubernetes.io/gpu: ''}}"]}, "may not give itself this label"),
        ({"patches": ["cluster: {ca: {key: LS0tLS1CRUdJTg==}}"]}, "cluster.ca"),
        ({"patches": ["machine: {kubelet: {image: 'ghcr.io/siderolabs/kubelet:v1.40.0'}}"]}, "runs Kubernetes 1.31 to 1.36"),
        ({"registryMirrors": {"docker.io": ["mirror.example.test"]}}, "not an address"),
    ],
)
def test_what_gives_no_node_is_refused_before_anything_is_rented(rig: Rig, talos: dict[str, t.Any], words: str) -> None:
    rig.demo_class["talosConfig"].update(talos)
    for refused in (lambda: rig.run("validate"), lambda: rig.rent()):
        with pytest.raises(InvalidInput) as caught:
            refused()
        assert words in str(caught.value)
    assert rig.creates() == 0


def test_gpus_without_their_driver_in_the_image_are_refused(rig: Rig) -> None:
    rig.demo_class["talosConfig"]["schematic"] = image("siderolabs/tailscale", *NVIDIA)
    rig.demo_class.setdefault("instanceRequirements", {})["gpuTypes"] = ["V100"]
    with pytest.raises(InvalidInput, match="V100 .Pascal or Volta. needs nonfree-kmod-nvidia"):
        rig.run("validate")


def test_patches_and_mirrors_are_on_the_machine(rig: Rig) -> None:
    rig.demo_class["talosConfig"]["patches"] = ["machine: {nodeLabels: {example.test/name: '{{ NodeName }}'}}"]
    rig.demo_class["talosConfig"]["registryMirrors"] = {"docker.io": ["https://mirror.example.test"]}
    rig.rent()
    machine = rig.machine()
    assert machine.payload is not None and f"example.test/name={machine.name}" in machine.payload
    assert any("RegistryMirrorConfig is not carried over" in text for text in rig.warnings)  # Ubuntu's own runtime pulls there


def _publish(rig: Rig, authority: str) -> None:
    body = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": authority}}
    rig.kube("PUT", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", body)


def test_the_secrets_of_another_cluster_are_refused_before_anything_is_rented(rig: Rig) -> None:
    _publish(rig, pem_of("another"))
    for refused in (lambda: rig.run("validate"), lambda: rig.plan("provision", check=True)):
        with pytest.raises(InvalidInput, match="those of another cluster"):
            refused()
    assert rig.creates() == 0


def test_the_secrets_of_this_cluster_are_taken_also_while_its_authority_changes(rig: Rig) -> None:
    own = base64.b64decode(read(rig.box.talos.bundle()).k8s_ca_crt).decode()
    _publish(rig, pem_of("another") + "\n" + own.replace("\n", "\r\n"))
    assert rig.run("validate")["checks"] and rig.rent()["machines"]


def pem_of(name: str) -> str:
    return base64.b64decode(pem(name)).decode()


# ---- what only the cluster's own facts can tell


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kubernetes_version": "1.37.0"}, "kubernetes_version: the kubelet v1.37.0 is newer than the API server v1.36.3"),
        ({"kubernetes_version": "1.32.9"}, "kubernetes_version: the kubelet v1.32.9 is more than 3 minor versions older"),
        ({"talos_version": "1.12.4"}, "Talos 1.12 runs Kubernetes 1.30 to 1.35, not v1.36.3"),
        ({"control_plane_endpoint": "https://kube.tail1.ts.net:6443"}, "unknown to them; write the control plane's 100.x address"),
        ({"control_plane_endpoint": "https://kubernetes.default.svc"}, "known inside the cluster only"),
        ({"control_plane_endpoint": "https://0.0.0.0:6443"}, "where a server listens"),
        ({"control_plane_endpoint": "https://kube.test:6443/api"}, "must be https://host:6443 without a path"),
    ],
)
def test_what_does_not_fit_the_cluster_is_refused_before_anything_is_rented(rig: Rig, options: dict[str, str], words: str) -> None:
    for module, more in (("validate", {}), ("plan", {"mode": "provision"})):
        with pytest.raises(InvalidInput) as caught:
            rig.run(module, **more, **options)
        assert words in str(caught.value), str(caught.value)
    assert rig.creates() == 0 and rig.claims() == {}


@pytest.mark.parametrize("version", ["1.36.0", "1.33.0"])
def test_a_kubelet_of_the_same_minor_or_three_older_fits(rig: Rig, version: str) -> None:
    assert rig.run("validate", kubernetes_version=version)["checks"]


def test_names_of_the_tailnet_are_known_to_ubuntu_and_to_a_talos_machine_that_is_told(rig: Rig) -> None:
    tailnet = {"control_plane_endpoint": "https://kube.tail1.ts.net:6443"}
    rig.demo_class["talosConfig"]["patches"] = [
        "{apiVersion: v1alpha1, kind: StaticHostConfig, name: 100.64.0.1, hostnames: [kube.tail1.ts.net]}"
    ]
    assert rig.run("validate", **tailnet)["checks"]
    del rig.demo_class["talosConfig"]["patches"]
    rig.demo_class["providers"] = [one for one in rig.demo_class["providers"] if one["name"] == "lambda"]
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] != "own"]
    assert rig.run("validate", **tailnet)["checks"]


def test_a_payload_that_its_cloud_does_not_carry_is_refused_before_anything_is_rented(rig: Rig) -> None:
    big = "abcdefghijklmnopqrstuvwxyz0123456789" * 400 + "".join(
        chr(97 + number * 7 % 26) + str(number * number) for number in range(9000)
    )
    rig.demo_class["providers"] = [{"name": "paperspace"}]
    rig.training["template"]["spec"]["requirements"] = []
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] != "own"]
    rig.demo_class["talosConfig"]["patches"] = [
        f"machine: {{files: [{{path: /var/lib/x, op: create, permissions: 384, content: '{big}'}}]}}"
    ]
    for refused in (lambda: rig.run("validate"), lambda: rig.run("plan", mode="provision")):
        with pytest.raises(InvalidInput) as caught:
            refused()
        assert "bytes and paperspace carries 16000" in str(caught.value), str(caught.value)
    assert rig.creates() == 0


def test_the_cards_of_own_machines_need_their_driver_too(rig: Rig) -> None:
    rig.demo_class["talosConfig"]["schematic"] = image("siderolabs/tailscale", *NVIDIA)
    rig.demo_class["providers"][1]["machines"][0]["gpuType"] = "V100"
    assert rig.run("plan", mode="provision", pools=["training"], check=True)["launch"], "what is not asked for stops nobody"
    for refused in (lambda: rig.run("validate"), lambda: rig.run("plan", mode="provision", pools=["own"])):
        with pytest.raises(InvalidInput, match="V100 .Pascal or Volta. needs nonfree-kmod-nvidia"):
            refused()


def talosctl(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, version: str = "v1.13.9") -> None:
    program = folder / "talosctl"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = version ] && echo "Talos {version}" && exit\ncat "$3" >{folder}/read\necho "no good" >&2\nexit 1\n'
    )
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_talosctl_is_asked_by_validate_where_it_is_there_and_by_a_plan_where_it_is_wanted(
    rig: Rig, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rig.run("validate")["checks"] and not (tmp_path / "read").exists()
    with pytest.raises(InvalidInput, match="no such program on PATH"):
        rig.run("validate", talosctl=True)
    talosctl(tmp_path, monkeypatch)
    with pytest.raises(InvalidInput, match="talosctl: no good"):
        rig.run("validate")
    assert "tailscale" in (tmp_path / "read").read_text()
    assert rig.run("validate", talosctl=False)["checks"]
    assert rig.run("plan", mode="provision")["run_id"]
    with pytest.raises(InvalidInput, match="talosctl: no good"):
        rig.run("plan", mode="provision", talosctl=True, check=True)
    talosctl(tmp_path, monkeypatch, "v1.10.1")
    assert rig.run("validate")["checks"], "one of another minor does not judge"
    with pytest.raises(InvalidInput, match="cannot be asked"):
        rig.run("validate", talosctl=True)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (
            "machine: {type: worker, ca: {crt: '{{ ClusterCA }}', key: LS0tLS1CRUdJTg==}}",
            "machine.ca.key: the private key of a CA must never be",
        ),
        (
            "cluster: {ca: {crt: '{{ KubernetesCA }}', key: LS0tLS1CRUdJTg==}}",
            "cluster.ca.key: the private key of a CA must never be",
        ),
        ("machine: {type: controlplane}", "machine.type is 'controlplane'; a rented GPU node must be a worker"),
        ("cluster: {etcd: {}}", "cluster.etcd belongs to control planes"),
        ("machine: {nodeLabels: {node-restriction.kubernetes.io/x: ''}}", "may not give itself this label"),
        ("machine: {kubelet: {image: 'ghcr.io/siderolabs/kubelet:v1.99.0'}}", "v1.99.0"),
    ],
)
def test_a_template_that_gives_no_worker_is_refused_before_anything_is_rented(rig: Rig, part: str, words: str) -> None:
    rig.demo_class["talosConfig"] = {"machineConfigTemplate": f"version: v1alpha1\n{part}\n"}
    for refused in (lambda: rig.run("validate"), lambda: rig.run("plan", mode="provision")):
        with pytest.raises(InvalidInput) as caught:
            refused()
        assert words in str(caught.value), str(caught.value)
    assert rig.creates() == 0


def test_a_card_without_a_driver_for_ubuntu_is_refused_before_anything_is_rented(rig: Rig) -> None:
    rig.demo_class["providers"] = [{"name": "vast"}]
    rig.training["template"]["spec"]["requirements"] = [{"key": "tgp.io/gpu-type", "operator": "In", "values": ["K80"]}]
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] != "own"]
    for refused in (lambda: rig.run("validate"), lambda: rig.run("plan", mode="provision")):
        with pytest.raises(InvalidInput, match="no NVIDIA driver that Ubuntu 22.04 or newer has knows the K80"):
            refused()


def test_extensions_that_the_release_does_not_have_are_refused_and_a_silent_factory_is_warned_of(rig: Rig) -> None:
    rig.demo_class["talosConfig"]["schematic"] = image("siderolabs/tailscale", "siderolabs/tailscales", *NVIDIA)
    with pytest.raises(
        InvalidInput, match="siderolabs/tailscales is not an official extension of Talos 1.13.9; it has siderolabs/tailscale"
    ):
        rig.run("plan", mode="provision")
    rig.demo_class["talosConfig"]["schematic"] = image("siderolabs/tailscale", *NVIDIA)
    assert rig.run("validate")["checks"] and not [text for text in rig.warnings if "was not found out" in text]
    rig.faults.add({"service": "image_factory", "kind": "status", "status": 503, "times": None})
    assert rig.run("validate")["checks"]
    assert [text for text in rig.warnings if "whether the extensions of its image exist was not found out" in text]


SEED = """
machine:
  install:
    disk: /dev/sda
    extensions:
      - image: ghcr.io/siderolabs/nvidia-container-toolkit:535.154.05-v1.14.6
      - image: ghcr.io/siderolabs/nonfree-kmod-nvidia:535.154.05-v1.7.6
  kernel:
    modules: [{name: nvidia}, {name: nvidia_uvm}, {name: nvidia_drm}, {name: nvidia_modeset}]
  files:
    - op: create
      content: |
        [plugins]
          [plugins."io.containerd.cri.v1.runtime"]
            [plugins."io.containerd.cri.v1.runtime".containerd]
              default_runtime_name = "nvidia"
      path: /etc/cri/conf.d/20-customization.part
cluster: {}
"""


def test_s4_06_what_the_seeds_configuration_says_is_reported_line_by_line(rig: Rig) -> None:
    """Its extensions have no effect, whatever the release; its default runtime is refused from Talos 1.13 on, before anything is launched."""
    rig.demo_class["talosConfig"] = {"machineConfigTemplate": SEED}
    for refused in (lambda: rig.run("validate"), lambda: rig.run("plan", mode="provision")):
        with pytest.raises(
            InvalidInput, match=r"machine.files\[0\].content: the default runtime nvidia is refused for Talos 1.13 and newer"
        ):
            refused()
    rig.demo_class["talosConfig"]["machineConfigTemplate"] = SEED.replace('"nvidia"', '"runc"')
    rig.demo_class.setdefault("instanceRequirements", {}).update({"gpuTypes": ["H100"], "gpuCount": 8})
    rig.demo_class["talosConfig"]["schematic"] = image("siderolabs/tailscale", *NVIDIA)
    found = next(one for one in rig.run("validate")["checks"] if one["what"].startswith("template of "))
    assert found["status"] == "warn"
    assert any("machine.install.extensions is outdated: it has no effect since Talos 1.10" in said for said in found["warnings"])
    assert any("no nvidia-fabricmanager: H100 sit on boards with NVSwitches" in said for said in found["warnings"])
