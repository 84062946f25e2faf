#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: talos_config
short_description: Make and check the configurations of GPU nodes of a Talos cluster
description:
  - Renders a template once per node, merges in what makes the node a worker of the cluster, and checks the result as Talos would.
  - Lane V(talos) gives a Talos machine configuration, lane V(kubelet) a C(#cloud-config) for a stock Ubuntu machine, made
    from the same.
  - Nothing is written or returned unless O(dest) or O(reveal) says so. A configuration is a secret.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  state:
    description:
      - V(present) makes the configurations.
      - V(validated) only tries out the template, with placeholders for every secret that is not given, and fails with one
        sentence for each thing that is wrong.
    type: str
    choices: [present, validated]
    default: present
  nodes:
    description: The nodes. All are made in one call; if one is wrong, none is written.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the machine, the mesh device and the node.
        type: str
        required: true
      pool:
        description: Name of its pool.
        type: str
        required: true
      index:
        description: Number of the node in its pool.
        type: int
        default: 0
      lane:
        description: How the machine becomes a node.
        type: str
        choices: [talos, kubelet]
        default: talos
      bootstrap_token:
        description: Bootstrap token of this node alone, C(id.secret).
        type: str
      auth_key:
        description: One-use mesh key of this node.
        type: str
      cloud:
        description: Name of the cloud.
        type: str
      instance_type:
        description: The cloud's name of the machine type. Becomes a label, unless the template sets that label.
        type: str
      region:
        description: The cloud's region.
        type: str
      labels:
        description: Labels. Those a node may not give itself are left out; they are set through the API after the node joined.
        type: dict
        default: {}
      annotations:
        description: Annotations (lane V(talos)).
        type: dict
        default: {}
      taints:
        description: Taints that stay.
        type: list
        elements: dict
        default: []
        suboptions: &taint
          key:
            description: Key of the taint.
            type: str
            required: true
          value:
            description: Value of the taint.
            type: str
            default: ''
          effect:
            description: Effect of the taint.
            type: str
            choices: [NoSchedule, PreferNoSchedule, NoExecute]
            required: true
      startup_taints:
        description: Taints that are taken off once the node is initialised.
        type: list
        elements: dict
        default: []
        suboptions: *taint
      gpu_count:
        description: Number of GPUs. From 1 on the NVIDIA kernel modules are loaded, and lane V(kubelet) counts them.
        type: int
      model:
        description: GPU model, for example V(A100).
        type: str
      install_disk:
        description: Disk that Talos installs itself to, on machines that boot from the network or a medium.
        type: str
      patches:
        description: Patches for this node alone, applied after O(patches).
        type: list
        elements: str
        default: []
        version_added: 0.2.0
  template:
    description: The template as text. Without it and O(template_file) the built-in one is used.
    type: str
  template_file:
    description: File of the template.
    type: path
  talos_image:
    description: Installer image, normally one of the Image Factory with the GPU and mesh extensions.
    type: str
  schematic:
    description:
      - What is in the Talos image, as the Image Factory takes it. GPUs without their driver in it are refused; without O(talos_image)
        the public factory's installer of it is used. M(tgp.gpu.talos_schematic) makes one.
    type: dict
  patches:
    description:
      - Strategic merge patches as text, like those of C(talosctl --config-patch), with C($patch) V(delete). They may use the template's
        variables, and are laid over everything in their order.
      - What makes a node ours they cannot change - secrets, endpoint, host name, its taints, labels under C(tgp.io/), the mesh key.
    type: list
    elements: str
    default: []
  registry_mirrors:
    description: Registry, for example V(docker.io) or V(*), to the list of its mirrors' URLs.
    type: dict
    default: {}
  mesh:
    description: The private network of the nodes.
    type: dict
    suboptions:
      backend:
        description:
          - V(tailscale) (also headscale), V(wireguard) for a tunnel to a hub of yours, or V(none) when the machine reaches the cluster
            by itself.
        type: str
        choices: [tailscale, wireguard, none]
        default: tailscale
      accept_routes:
        description: Take routes of the tailnet's subnet routers.
        type: bool
        default: false
      advertise_routes:
        description: Routes the node offers to the tailnet.
        type: list
        elements: str
        default: []
      wireguard:
        description:
          - The end of the tunnel that one node gets, so O(nodes) may list one then. Needed with O(mesh.backend=wireguard), unless a
            template is only tried out.
          - The hub learns of the node by M(tgp.gpu.wireguard_peer), or by hand.
        type: dict
        suboptions:
          private_key:
            description: The node's own key, of C(wg genkey). Its public key belongs to the hub.
            type: str
            required: true
          address:
            description: The node's address in the tunnel with the length of the whole network, for example V(10.77.0.11/24).
            type: str
            required: true
          hub_public_key:
            description: Public key of the hub.
            type: str
            required: true
          endpoint:
            description: IP address and UDP port at which the hub is reached. A name is not looked up by anybody.
            type: str
            required: true
          hub_address:
            description: The hub's address in the tunnel.
            type: str
            required: true
          allowed_ips:
            description: Networks that go through the tunnel. Default is the network of O(mesh.wireguard.address) alone.
            type: list
            elements: str
            default: []
          interface:
            description: Name of the interface.
            type: str
            default: wg-tgp
          mtu:
            description: Bytes of the longest packet.
            type: int
            default: 1420
          keepalive:
            description: Seconds between two signs of life, which keep a way through NAT open.
            type: int
            default: 25
  ephemeral_taint:
    description: Register the node with the taint C(tgp.io/ephemeral=true:NoSchedule).
    type: bool
    default: true
  cni:
    description:
      - Network of pods in lane V(kubelet). V(local) is a bridge of the node's own - pods reach the internet and the API, but
        not the pods of other nodes.
      - V(flannel) is Talos's own network; it needs O(flannel_cni_url) and O(flannel_cni_sha256), because Talos keeps the plugin
        in its system.
    type: str
    choices: [local, flannel]
    default: local
  flannel_cni_url:
    description: Archive of the flannel CNI plugin, https only.
    type: str
  flannel_cni_sha256:
    description: Its SHA-256, in hex.
    type: str
  driver_branch:
    description: NVIDIA driver branch that lane V(kubelet) installs where the image brings no driver.
    type: str
    default: '580'
  release_tables:
    description:
      - A YAML file with rows for the tables of Talos releases, their Kubernetes and NVIDIA's drivers (docs/reference/releases.md). Its rows
        are laid over those of the collection.
      - If not set, the environment variable E(TGP_RELEASE_TABLES) is used.
    type: path
    version_added: 0.2.0
  talosctl:
    description:
      - Whether to let C(talosctl validate) look at one of the configurations, too. Default is when C(talosctl) is on PATH and of the
        minor version of O(talos_version). V(true) makes a missing or unfit program an error.
    type: bool
  dest:
    description:
      - Folder for one file per node, readable by its owner alone. C(NAME.yaml) for Talos, C(NAME.cloud-init) for lane V(kubelet).
    type: path
  reveal:
    description: Return the configurations in RV(configs), in base64. They are secrets; set C(no_log) on the task.
    type: bool
    default: false
requirements:
  - PyYAML >= 6.0
  - cronsim >= 2.6 (for O(release_tables))
  - jsonschema >= 4.20 (for O(release_tables))
  - tzdata >= 2024.1 (for O(release_tables))
  - cryptography >= 42 (for Google Cloud)
extends_documentation_fragment:
  - tgp.gpu.talos
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Is this template fit for GPU nodes?
  tgp.gpu.talos_config:
    state: validated
    template_file: examples/templates/worker.yaml

- name: Write the configuration of one own machine
  tgp.gpu.talos_config:
    talos_secrets: secrets.yaml
    control_plane_endpoint: https://100.64.0.1:6443
    kubernetes_version: 1.36.3
    registry_mirrors:
      docker.io: ["https://mirror.example.org"]
    patches:
      - |
        machine:
          sysctls:
            vm.max_map_count: "262144"
    dest: configs
    nodes:
      - name: tgp-lab-1
        pool: lab
        gpu_count: 1
        bootstrap_token: "{{ token }}"
        auth_key: "{{ key }}"
        taints:
          - key: nvidia.com/gpu
            value: present
            effect: NoSchedule

- name: Write the configuration of a machine that reaches the cluster by a WireGuard hub
  tgp.gpu.talos_config:
    talos_secrets: secrets.yaml
    control_plane_endpoint: https://10.77.0.1:6443
    mesh:
      backend: wireguard
      wireguard:
        private_key: "{{ wireguard_key }}"
        address: 10.77.0.11/24
        hub_public_key: j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=
        endpoint: 203.0.113.10:51820
        hub_address: 10.77.0.1
    dest: configs
    nodes:
      - name: tgp-lab-2
        pool: lab
        bootstrap_token: "{{ token }}"

- name: Take cloud-init texts for rented Ubuntu machines
  tgp.gpu.talos_config:
    talos_secrets: secrets.yaml
    control_plane_endpoint: https://100.64.0.1:6443
    reveal: true
    nodes:
      - name: tgp-a10-1
        pool: a10
        lane: kubelet
        gpu_count: 1
        bootstrap_token: "{{ token }}"
        auth_key: "{{ key }}"
  no_log: true
  register: made
"""

RETURN = r"""
configs:
  description: One entry per node, in the order of O(nodes). Empty with O(state=validated).
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the node.
      type: str
      returned: always
      sample: tgp-a10-1
    lane:
      description: Lane the text is for.
      type: str
      returned: always
      sample: kubelet
    carrier:
      description: What reads the text, C(machine-config) (Talos) or C(cloud-config) (cloud-init).
      type: str
      returned: always
      sample: cloud-config
    bytes:
      description: Size of the text.
      type: int
      returned: always
      sample: 9102
    sha256:
      description: SHA-256 of the text.
      type: str
      returned: always
    warnings:
      description: What is better written otherwise, or is not carried over to the lane.
      type: list
      elements: str
      returned: always
    path:
      description: File it was written to.
      type: str
      returned: when O(dest) is set
      sample: configs/tgp-a10-1.cloud-init
    content:
      description: The text in base64. A secret.
      type: str
      returned: when O(reveal) is set
"""

from ansible.module_utils.basic import env_fallback

from ..module_utils.bootstrap.batch import configure
from ..module_utils.core.task import Task, main
from ..module_utils.observe.release_tables import use_release_tables

_TAINT = dict(
    key=dict(type="str", required=True, no_log=False),
    value=dict(type="str", default=""),
    effect=dict(type="str", required=True, choices=["NoSchedule", "PreferNoSchedule", "NoExecute"]),
)

_NODE = dict(
    name=dict(type="str", required=True),
    pool=dict(type="str", required=True),
    index=dict(type="int", default=0),
    lane=dict(type="str", choices=["talos", "kubelet"], default="talos"),
    bootstrap_token=dict(type="str", no_log=True),
    auth_key=dict(type="str", no_log=True),
    cloud=dict(type="str"),
    instance_type=dict(type="str"),
    region=dict(type="str"),
    labels=dict(type="dict", default={}),
    annotations=dict(type="dict", default={}),
    taints=dict(type="list", elements="dict", default=[], options=_TAINT),
    startup_taints=dict(type="list", elements="dict", default=[], options=_TAINT),
    gpu_count=dict(type="int"),
    model=dict(type="str"),
    install_disk=dict(type="str"),
    patches=dict(type="list", elements="str", default=[]),
)

_WIREGUARD = dict(
    private_key=dict(type="str", required=True, no_log=True),
    address=dict(type="str", required=True),
    hub_public_key=dict(type="str", required=True, no_log=False),
    endpoint=dict(type="str", required=True),
    hub_address=dict(type="str", required=True),
    allowed_ips=dict(type="list", elements="str", default=[]),
    interface=dict(type="str", default="wg-tgp"),
    mtu=dict(type="int", default=1420),
    keepalive=dict(type="int", default=25),
)

_MESH = dict(
    backend=dict(type="str", choices=["tailscale", "wireguard", "none"], default="tailscale"),
    accept_routes=dict(type="bool", default=False),
    advertise_routes=dict(type="list", elements="str", default=[]),
    wireguard=dict(type="dict", options=_WIREGUARD),
)

SPEC = dict(
    argument_spec=dict(
        state=dict(type="str", choices=["present", "validated"], default="present"),
        nodes=dict(type="list", elements="dict", default=[], options=_NODE),
        template=dict(type="str"),
        template_file=dict(type="path"),
        talos_image=dict(type="str"),
        schematic=dict(type="dict"),
        patches=dict(type="list", elements="str", default=[]),
        registry_mirrors=dict(type="dict", default={}),
        mesh=dict(type="dict", options=_MESH),
        ephemeral_taint=dict(type="bool", default=True),
        cni=dict(type="str", choices=["local", "flannel"], default="local"),
        flannel_cni_url=dict(type="str"),
        flannel_cni_sha256=dict(type="str"),
        driver_branch=dict(type="str", default="580"),
        release_tables=dict(type="path", fallback=(env_fallback, ["TGP_RELEASE_TABLES"])),
        talosctl=dict(type="bool"),
        dest=dict(type="path"),
        reveal=dict(type="bool", default=False),
        talos_secrets=dict(type="raw", no_log=True, fallback=(env_fallback, ["TGP_TALOS_SECRETS"])),
        control_plane_endpoint=dict(type="str", fallback=(env_fallback, ["TGP_CONTROL_PLANE_ENDPOINT"])),
        cluster_name=dict(type="str"),
        kubernetes_version=dict(type="str"),
        talos_version=dict(type="str"),
        mesh_login_server=dict(type="str"),
    ),
    mutually_exclusive=[("template", "template_file")],
    required_if=[("state", "present", ("nodes", "talos_secrets"))],
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    use_release_tables(task)
    return configure(task)


if __name__ == "__main__":
    main(SPEC, run)
