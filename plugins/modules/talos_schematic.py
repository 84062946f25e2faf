#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: talos_schematic
short_description: Describe a Talos image for GPU nodes, and have the Image Factory number it
description:
  - A schematic says what is in a Talos image beside Talos itself - system extensions, kernel arguments and the like. Its id is part of the
    name of every image the factory makes of it, and follows from the content alone.
  - The id is computed here where that is exact, and compared with the one that the factory gives. A difference is an error, because
    the factory then read something else than was meant.
  - Every extension has to exist for the Talos release, NVIDIA's have to belong together, and the driver has to fit the GPUs.
  - A schematic is public. Whatever looks like a secret in it is refused.
  - Schematics cannot be changed or deleted. Nothing is handed in that the factory has already.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  talos_version:
    description: Talos release, for example V(1.13.9), which is the default.
    type: str
  extensions:
    description:
      - Official system extensions by name (V(tailscale), V(siderolabs/tailscale)) or by reference
        (V(ghcr.io/siderolabs/tailscale:1.102.2)), whose version must then be that of the release.
      - Their order does not matter.
    type: list
    elements: str
    default: []
  gpu_models:
    description:
      - GPUs of the nodes. NVIDIA's kernel modules and container toolkit for them are added. Turing and newer cards get the
        open modules, Pascal and Volta the proprietary ones of track V(lts); older ones are refused.
    type: list
    elements: str
    default: []
  gpu_count:
    description: GPUs of one node. From 8 on, boards with NVSwitches get the fabric manager.
    type: int
  driver_track:
    description:
      - Track of NVIDIA's extensions. V(auto) takes V(production) or V(lts), whichever has a driver that knows all O(gpu_models).
      - V(new-feature) is there from Talos 1.15 on, and taken only when it is named.
    type: str
    choices: [auto, production, lts, new-feature]
    default: auto
  fabric_manager:
    description: Whether to add NVIDIA's fabric manager. Default is by O(gpu_models) and O(gpu_count).
    type: bool
  mesh:
    description: V(tailscale) adds the extension tailscale (also for headscale).
    type: str
    choices: [tailscale, none]
    default: tailscale
  kernel_args:
    description: Kernel arguments, in their order. One that begins with a dash takes a default argument away.
    type: list
    elements: str
    default: []
  meta:
    description: Values of Talos's META partition.
    type: list
    elements: dict
    default: []
    suboptions:
      key:
        description: Number of the key, for example V(10) for the network configuration of metal machines.
        type: int
        required: true
      value:
        description: Its value.
        type: str
        required: true
  overlay:
    description: Overlay for boards that need one.
    type: dict
    suboptions:
      name:
        description: Name of the overlay.
        type: str
        required: true
      image:
        description: Image that it comes in.
        type: str
        required: true
      options:
        description: Options of the overlay.
        type: dict
  bootloader:
    description: Boot loader of the image. Default is Talos's own choice.
    type: str
    choices: [auto, sd-boot, dual-boot, grub]
  schematic:
    description: A schematic as the factory takes it, to begin with. What the other options say is added to it.
    type: dict
  schematic_id:
    description: Instead of all content, the id of an existing schematic. It is only checked - against the release, O(gpu_models) and O(mesh).
    type: str
  platform:
    description: Where the image boots. V(metal) for own machines and network boot, V(nocloud) for Proxmox and the like.
    type: str
    choices:
      - metal
      - nocloud
      - aws
      - gcp
      - azure
      - digital-ocean
      - openstack
      - hcloud
      - scaleway
      - upcloud
      - akamai
      - cloudstack
      - oracle
      - exoscale
      - opennebula
      - vmware
      - vultr
      - equinixMetal
    default: metal
  arch:
    description: CPU of the machines.
    type: str
    choices: [amd64, arm64]
    default: amd64
  secureboot:
    description: Name the images for Secure Boot.
    type: bool
    default: false
  offline:
    description: Ask nobody. The id is computed, extensions are not checked against the release.
    type: bool
    default: false
  release_tables:
    description:
      - A YAML file with rows for the tables of Talos releases, their Kubernetes and NVIDIA's drivers (docs/reference/releases.md). Its rows
        are laid over those of the collection.
      - If not set, the environment variable E(TGP_RELEASE_TABLES) is used.
    type: path
    version_added: 0.2.0
  image_factory_url:
    description:
      - Address of the Image Factory. Default is V(https://factory.talos.dev).
      - If not set, the environment variable E(IMAGE_FACTORY_URL) is used.
    type: str
requirements:
  - PyYAML >= 6.0
  - cronsim >= 2.6 (for O(release_tables))
  - jsonschema >= 4.20 (for O(release_tables))
  - tzdata >= 2024.1 (for O(release_tables))
  - cryptography >= 42 (for Google Cloud)
extends_documentation_fragment:
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.talos_config
"""

EXAMPLES = r"""
- name: An image for nodes with A100 or newer
  tgp.gpu.talos_schematic:
    talos_version: 1.13.9
    gpu_models: [A100, H100]
  register: image

- name: Use it in the configurations
  tgp.gpu.talos_config:
    state: validated
    talos_image: "{{ image.images.installer }}"
    template_file: examples/templates/worker.yaml

- name: An image for older cards, on which a reboot is always a full one
  tgp.gpu.talos_schematic:
    gpu_models: [P4000, V100]
    kernel_args: [sysctl.kernel.kexec_load_disabled=1]

- name: Does an image that exists fit the nodes?
  tgp.gpu.talos_schematic:
    schematic_id: "{{ image.id }}"
    gpu_models: [L40S]
"""

RETURN = r"""
id:
  description: The schematic's id. Empty in check mode where only the factory can tell it.
  returned: always
  type: str
  sample: ac674a9bdc851c27611448f940f5b0b948922d53081cf39ac1eb8a8b04e4347d
schematic:
  description: The schematic as the factory writes it; the id is the SHA-256 of this text.
  returned: always
  type: str
talos_version:
  description: The release it was checked against.
  returned: always
  type: str
  sample: 1.13.9
extensions:
  description: Its official extensions.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name of the extension., type: str, returned: always, sample: siderolabs/tailscale}
    version: {description: Its version in this release; empty when offline., type: str, returned: always, sample: 1.102.2}
images:
  description: Where its images are. The factory makes an image when it is asked for the first time, which takes minutes.
  returned: always
  type: dict
  contains:
    installer:
      description: Installer, for C(machine.install.image), C(talosConfig.image) and upgrades.
      type: str
      returned: when the id is known
      sample: factory.talos.dev/metal-installer/ac674a9bdc851c27611448f940f5b0b948922d53081cf39ac1eb8a8b04e4347d:v1.13.9
    pxe: {description: iPXE script., type: str, returned: when the id is known}
    iso: {description: ISO image., type: str, returned: when the id is known}
    disk: {description: Disk image; empty on platforms without one., type: str, returned: when the id is known}
    kernel: {description: Kernel., type: str, returned: when the id is known}
    initramfs: {description: Initial file system., type: str, returned: when the id is known}
    cmdline: {description: Kernel command line., type: str, returned: when the id is known}
"""

from ansible.module_utils.basic import env_fallback

from ..module_utils.core.task import Task, main
from ..module_utils.observe.release_tables import use_release_tables
from ..module_utils.talos.images.factory import ARCHITECTURES, PLATFORMS
from ..module_utils.talos.images.schematics import schematic_of
from ..module_utils.talos.releases.tables import TRACKS

_META = dict(key=dict(type="int", required=True, no_log=False), value=dict(type="str", required=True))
_OVERLAY = dict(name=dict(type="str", required=True), image=dict(type="str", required=True), options=dict(type="dict"))

SPEC = dict(
    argument_spec=dict(
        talos_version=dict(type="str"),
        extensions=dict(type="list", elements="str", default=[]),
        gpu_models=dict(type="list", elements="str", default=[]),
        gpu_count=dict(type="int"),
        driver_track=dict(type="str", choices=["auto", *TRACKS], default="auto"),
        fabric_manager=dict(type="bool"),
        mesh=dict(type="str", choices=["tailscale", "none"], default="tailscale"),
        kernel_args=dict(type="list", elements="str", default=[]),
        meta=dict(type="list", elements="dict", default=[], options=_META),
        overlay=dict(type="dict", options=_OVERLAY),
        bootloader=dict(type="str", choices=["auto", "sd-boot", "dual-boot", "grub"]),
        schematic=dict(type="dict"),
        schematic_id=dict(type="str"),
        platform=dict(type="str", choices=list(PLATFORMS), default="metal"),
        arch=dict(type="str", choices=list(ARCHITECTURES), default="amd64"),
        secureboot=dict(type="bool", default=False),
        offline=dict(type="bool", default=False),
        release_tables=dict(type="path", fallback=(env_fallback, ["TGP_RELEASE_TABLES"])),
        image_factory_url=dict(type="str", fallback=(env_fallback, ["IMAGE_FACTORY_URL"])),
    ),
    mutually_exclusive=[("schematic_id", "schematic"), ("schematic_id", "overlay"), ("schematic_id", "bootloader")],
    supports_check_mode=True,
)


def run(task: Task) -> dict[str, object]:
    use_release_tables(task)
    return schematic_of(task)


if __name__ == "__main__":
    main(SPEC, run)
