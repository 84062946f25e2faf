# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a class says of its Talos image, patches and mirrors: refused before anything is rented, and on the machine as it was meant."""

from __future__ import annotations

import base64
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.errors import InvalidInput
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
        ({"registryMirrors": {"docker.io": ["mirror.example.test"]}}, "no address"),
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
    for refused in (lambda: rig.run("validate"), lambda: rig.rent()):
        with pytest.raises(InvalidInput, match="those of another cluster"):
            refused()
    assert rig.creates() == 0


def test_the_secrets_of_this_cluster_are_taken_also_while_its_authority_changes(rig: Rig) -> None:
    own = base64.b64decode(read(rig.box.talos.bundle()).k8s_ca_crt).decode()
    _publish(rig, pem_of("another") + "\n" + own.replace("\n", "\r\n"))
    assert rig.run("validate")["checks"] and rig.rent()["machines"]


def pem_of(name: str) -> str:
    return base64.b64decode(pem(name)).decode()
