#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: talos_boot_media
short_description: Write what own machines boot Talos from and find their configuration by
description:
  - For machines that no cloud rents out - in a rack, under a desk, on Proxmox or another hypervisor.
  - Form V(ipxe) is a script for network boot. It is the Image Factory's own, with kernel arguments added that say where the configuration is.
  - Form V(nocloud) is a seed for images of platform nocloud, with user data, meta data and network configuration.
  - Form V(metal_iso) is a volume that images of platform metal read when they have the kernel argument C(talos.config=metal-iso).
  - A configuration is a secret. Files are for their owner alone (0600), and no content is returned or shown as a difference.
  - What never changes for a machine may as well wait in maintenance mode and be handed its configuration by M(tgp.gpu.talos_push).
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  schematic_id:
    description: Id of the image's schematic, 64 hex digits. M(tgp.gpu.talos_schematic) tells it.
    type: str
    required: true
  talos_version:
    description: Talos release, for example V(1.13.9), which is the default.
    type: str
  platform:
    description: Platform of the image. V(metal) for form V(ipxe) and V(metal_iso), V(nocloud) for form V(nocloud).
    type: str
    choices: [metal, nocloud]
    default: metal
  arch:
    description: CPU of the machines.
    type: str
    choices: [amd64, arm64]
    default: amd64
  secureboot:
    description: Name images for Secure Boot. Their command line is signed, so nothing can be added to it.
    type: bool
    default: false
  forms:
    description: What to write. Nothing is written without a form, and the references are returned.
    type: list
    elements: str
    choices: [ipxe, nocloud, metal_iso]
    default: []
  dest:
    description: Folder for the files. Needed with O(forms).
    type: path
  config_url:
    description:
      - Address that answers with the configuration (kernel argument C(talos.config)), the same for all machines. Talos fills in
        C(${uuid}), C(${mac}), C(${serial}), C(${hostname}) and C(${code}) in its query, by which the service knows the machine.
      - Without it, and without V(metal_iso), the machine waits in maintenance mode.
      - The command line is readable on the machine and the address stands in logs. No user, password, token or key may be in it.
    type: str
  consoles:
    description: Consoles for kernel messages, for example V(ttyS0,115200). The last one counts for what reads and writes the console.
    type: list
    elements: str
    default: []
  kernel_args:
    description: Further kernel arguments. They are added to those of the image.
    type: list
    elements: str
    default: []
  nodes:
    description: The machines. Not needed for a script that is the same for all.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the node. Files are named after it.
        type: str
        required: true
      config:
        description: Machine configuration as text (forms V(nocloud) and V(metal_iso)). One of this and O(nodes[].config_file) is needed there.
        type: str
      config_file:
        description: File of the machine configuration, for example one that M(tgp.gpu.talos_config) wrote.
        type: path
      config_url:
        description:
          - Address of this machine's configuration alone (form V(ipxe)), in the place of O(config_url). Its path may hold a ticket that is
            good once and for minutes. It is treated as a secret.
        type: str
      network_config:
        description: Network configuration in cloud-init's form, version 1 or 2 (form V(nocloud)). Without it the machine asks DHCP.
        type: dict
  image:
    description:
      - Make ISO volumes of the seeds, ready to be attached. Needs the Python library pycdlib, and neither root nor another program.
      - Otherwise the files are written, and RV(commands) has what makes volumes of them.
    type: bool
    default: false
  image_factory_url:
    description:
      - Address of the Image Factory. Default is V(https://factory.talos.dev).
      - If not set, the environment variable E(IMAGE_FACTORY_URL) is used.
    type: str
requirements:
  - PyYAML >= 6.0
  - pycdlib >= 1.15 (for O(image=true))
extends_documentation_fragment:
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.talos_schematic
  - module: tgp.gpu.talos_config
  - module: tgp.gpu.talos_push
"""

EXAMPLES = r"""
- name: Boot the rack from the network; a service of ours knows each machine by its UUID
  tgp.gpu.talos_boot_media:
    schematic_id: "{{ image.id }}"
    forms: [ipxe]
    config_url: https://boot.example.com/config?uuid=${uuid}&mac=${mac}
    consoles: ["ttyS0,115200"]
    dest: boot

- name: A seed for a virtual machine on Proxmox, with a fixed address
  tgp.gpu.talos_boot_media:
    schematic_id: "{{ image.id }}"
    platform: nocloud
    forms: [nocloud]
    image: true
    dest: boot
    nodes:
      - name: tgp-lab-1
        config_file: configs/tgp-lab-1.yaml
        network_config:
          version: 2
          ethernets:
            eth0:
              addresses: [10.20.0.11/24]
              gateway4: 10.20.0.1
"""

RETURN = r"""
files:
  description: What was, or would be, written.
  type: list
  elements: dict
  returned: always
  contains:
    form: {description: Its form., type: str, returned: always, sample: ipxe}
    node: {description: The node it is for; empty when it is the same for all., type: str, returned: always}
    path: {description: The file., type: str, returned: always}
    bytes: {description: Its size., type: int, returned: always}
    sha256: {description: SHA-256 of its content., type: str, returned: always}
    changed: {description: "Whether it was, or would be, written.", type: bool, returned: always}
images:
  description: Where the images are. The factory makes an image when it is asked for the first time, which takes minutes.
  type: dict
  returned: always
  contains:
    installer: {description: "Installer, for C(machine.install.image) of machines that install themselves.", type: str, returned: always}
    pxe: {description: iPXE script of the factory., type: str, returned: always}
    iso: {description: ISO image., type: str, returned: always}
    disk: {description: Disk image., type: str, returned: always}
    kernel: {description: Kernel., type: str, returned: always}
    initramfs: {description: Initial file system., type: str, returned: always}
    cmdline: {description: Kernel command line., type: str, returned: always}
kernel_args:
  description: >-
    Kernel arguments that all machines need beside the image's own. Scripts have them. For disk images and ISO images put them into the
    schematic (M(tgp.gpu.talos_schematic)).
  type: list
  elements: str
  returned: always
  sample: ["talos.config=metal-iso"]
commands:
  description: Shell commands that make volumes of the written seeds, one per seed. Empty with O(image=true).
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.basic import env_fallback

from ..module_utils.bootstrap.talos.boot_media import FORMS, prepare
from ..module_utils.core.task import Task, main
from ..module_utils.talos.images.factory import ARCHITECTURES

_NODE = dict(
    name=dict(type="str", required=True),
    config=dict(type="str", no_log=True),
    config_file=dict(type="path"),
    config_url=dict(type="str", no_log=True),
    network_config=dict(type="dict"),
)

SPEC = dict(
    argument_spec=dict(
        schematic_id=dict(type="str", required=True),
        talos_version=dict(type="str"),
        platform=dict(type="str", choices=["metal", "nocloud"], default="metal"),
        arch=dict(type="str", choices=list(ARCHITECTURES), default="amd64"),
        secureboot=dict(type="bool", default=False),
        forms=dict(type="list", elements="str", choices=list(FORMS), default=[]),
        dest=dict(type="path"),
        config_url=dict(type="str"),
        consoles=dict(type="list", elements="str", default=[]),
        kernel_args=dict(type="list", elements="str", default=[]),
        nodes=dict(type="list", elements="dict", default=[], options=_NODE),
        image=dict(type="bool", default=False),
        image_factory_url=dict(type="str", fallback=(env_fallback, ["IMAGE_FACTORY_URL"])),
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return prepare(task)


if __name__ == "__main__":
    main(SPEC, run)
