#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: device_plugin
short_description: Install NVIDIA's device plugin, so that nodes show their GPUs
description:
  - Applies the device plugin to the cluster with server-side apply, alone or by the GPU Operator (O(profile)), waits until it is ready on its
    nodes, and checks that each node shows its GPUs times replicas. With O(render_to) it writes the same objects into a folder for
    C(kubectl apply -k).
  - Use the kubeconfig of an administrator. The namespace C(gpu-device-plugin) is labelled for the pod security level C(privileged), because
    a device plugin mounts a folder of the host.
  - Refuses to install a second device plugin beside that of a GPU Operator or of another DaemonSet, and prints how to move.
  - A second run that has nothing to change makes no write call.
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  state:
    description:
      - V(present) installs the device plugin.
      - V(absent) removes what this module has applied with either profile, by name and by the label C(app.kubernetes.io/managed-by=tgp.gpu).
        Device plugins of others stay. So does a namespace in which something of others is.
      - With V(absent) only O(force), O(timeout), O(helm) and the options of the cluster are used, and O(render_to) is refused. It ends with
        the reason while pods use GPUs of the plugin, unless O(force=true).
    type: str
    choices: [present, absent]
    default: present
    version_added: 0.3.0
  profile:
    description:
      - V(standalone) installs the device plugin alone.
      - V(operator) installs NVIDIA's GPU Operator with C(helm), with the driver and the container toolkit switched off, because the image of
        Talos has both. Use it on Talos 1.13 and newer.
      - V(auto) keeps a stand-alone plugin that is installed. Without one it is V(operator) where all nodes run Talos 1.13 or newer
        (or O(talos_version) says so), else V(standalone).
      - Neither is installed beside the other.
    type: str
    choices: [auto, standalone, operator]
    default: auto
  replicas:
    description:
      - How many pods share each GPU by time slicing. V(1) is a whole GPU for each pod.
      - Without it and without O(config), what the pools of O(documents) say in C(timeSlicing); V(1) without documents.
      - Time slicing isolates neither memory nor faults of the pods that share a GPU.
    type: int
  config:
    description:
      - The plugin's whole configuration (C(version, flags, sharing)), as a mapping or as the path of a file. It is checked, and a field that
        the plugin would ignore is refused.
    type: raw
  configs:
    description:
      - Further configurations by name, each as a mapping, as the path of a file, or as a number of replicas. A node chooses one by the label
        C(nvidia.com/device-plugin.config). Each has a DaemonSet of its own, so that no side car with rights to read nodes is needed.
    type: dict
    default: {}
  documents:
    description:
      - Documents with the pools whose nodes the plugin serves, as paths of files and folders or as mappings. It tolerates the taints of
        these pools, and their C(timeSlicing) must agree with the configuration.
    type: list
    elements: raw
    default: []
  documents_from_cluster:
    description: Read the documents from the cluster, too.
    type: bool
    default: false
  node_selector:
    description:
      - Labels of the nodes on which the plugin runs. By default C(nvidia.com/gpu.present=true), which the collection sets on every node with
        NVIDIA GPUs. Set it yourself on other nodes, or select by a label of Node Feature Discovery such as
        C(feature.node.kubernetes.io/pci-10de.present).
    type: dict
  tolerations:
    description: Tolerations besides those for C(nvidia.com/gpu), the taints of the collection and those of the pools.
    type: list
    elements: dict
    default: []
    suboptions:
      key:
        description: Key of the taint. Without it every taint.
        type: str
      operator:
        description: V(Exists) or V(Equal).
        type: str
        choices: [Exists, Equal]
        default: Exists
      value:
        description: Value of the taint, with V(Equal).
        type: str
      effect:
        description: Effect of the taint. Without it every effect.
        type: str
        choices: [NoSchedule, PreferNoSchedule, NoExecute]
  talos_version:
    description:
      - Release of Talos on the GPU nodes, such as V(1.13.9). From 1.13 the plugin gets the path of the CDI hook in Talos's extension.
      - Without it the oldest release of the cluster's nodes, where all of them run Talos.
    type: str
  operator_values:
    description: Values of the GPU Operator chart that are added to those for Talos, and win. Only with the profile V(operator).
    type: dict
    default: {}
  operator_chart:
    description: Name, path or C(oci://) reference of the chart.
    type: str
    default: gpu-operator
  operator_repository:
    description: Repository of the chart; empty where O(operator_chart) is a path or reference.
    type: str
    default: https://helm.ngc.nvidia.com/nvidia
  operator_version:
    description: Version of the chart.
    type: str
    default: v26.7.0
  helm:
    description: Name or path of the program.
    type: str
    default: helm
  image:
    description: Image of the stand-alone device plugin.
    type: str
    default: nvcr.io/nvidia/k8s-device-plugin:v0.20.0
  metrics_service:
    description:
      - Also make the Service C(nvidia-device-plugin-metrics) for port 2112. The plugin itself serves no metrics there, so it has no answer
        before an exporter listens on this port.
    type: bool
    default: true
  power_limits:
    description:
      - Also hold power limits of the GPUs, on nodes with the label C(tgp.io/power-limit=true), by the DaemonSet C(nvidia-powerlimit). Its pods
        are privileged, because the driver refuses to change a limit otherwise. Without this option nothing is limited, and a DaemonSet
        of an earlier run is removed.
      - Each card's own range decides. Outside of it, and on machines that permit no limits, the limit stays as it is and the pod is not
        Ready, with the reason.
    type: dict
    suboptions:
      watts:
        description:
          - Watts by model, as C(nvidia-smi) names it. V(0) sets no limit. C(NVIDIA GeForce RTX 3090) has 300 unless it is listed.
        type: dict
        default: {}
      interval:
        description: How often each node checks its limits, such as V(30m).
        type: str
        default: 30m
      persistence_mode:
        description: Also switch on persistence mode, without which a driver may drop the limit when no program uses the GPU.
        type: bool
        default: true
      image:
        description: Image with a shell in which the pods run. C(nvidia-smi) comes from the node.
        type: str
        default: nvcr.io/nvidia/cuda:12.8.1-base-ubuntu22.04
  timeout:
    description:
      - Seconds to wait for the plugin and the nodes' GPUs. With V(0) nothing is waited for.
      - With O(state=absent) for the end of the namespace.
    type: int
    default: 300
  render_to:
    description: Write the objects and a C(kustomization.yaml) into this folder instead of applying them. No cluster is needed.
    type: path
  force:
    description:
      - Install although another device plugin exists, take over fields of objects that another field manager owns, and replace files of
        O(render_to) that differ.
      - With O(state=absent) also while pods use GPUs of the plugin.
    type: bool
    default: false
requirements:
  - cronsim >= 2.6 (for documents)
  - jsonschema >= 4.20 (for documents)
  - tzdata >= 2024.1 (where the system has no time zones)
  - cryptography >= 42 (for Google Cloud)
extends_documentation_fragment:
  - tgp.gpu.kubernetes
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Take away what an earlier run installed, to install another profile
  tgp.gpu.device_plugin:
    state: absent
    force: true # also while pods use GPUs

- name: Whole GPUs, and a quarter of one for each pod on nodes with the label nvidia.com/device-plugin.config=quarters
  tgp.gpu.device_plugin:
    profile: standalone
    documents: [examples/demo]
    configs: {quarters: 4}
    force: true # beside another device plugin

- name: A folder for kubectl apply -k, with four pods on each GPU
  tgp.gpu.device_plugin:
    replicas: 4
    render_to: gpu-device-plugin

- name: Whole GPUs, and limits of two models on nodes with the label tgp.io/power-limit=true
  tgp.gpu.device_plugin:
    power_limits:
      watts: {NVIDIA GeForce RTX 3090: 300, Tesla T4: 65}
    render_to: gpu-power-limits
"""

RETURN = r"""
profile:
  description: V(standalone) or V(operator).
  type: str
  returned: always
objects:
  description: The objects of the device plugin; with O(state=absent) those that were removed. Empty with O(render_to).
  type: list
  elements: dict
  returned: always
  contains:
    kind:
      description: Kind of the object.
      type: str
    namespace:
      description: Namespace of the object, empty for one without.
      type: str
    name:
      description: Name of the object.
      type: str
    result:
      description: V(created), V(changed), V(unchanged) or V(removed); in check mode what the run would do.
      type: str
nodes:
  description: The Ready nodes that the plugin serves. Empty in check mode, with O(timeout=0) and with O(render_to).
  type: list
  elements: dict
  returned: always
  contains:
    name:
      description: Name of the Node.
      type: str
    config:
      description: Key of its configuration in the ConfigMap.
      type: str
    resource:
      description: Resource under which it offers its GPUs.
      type: str
    gpus:
      description: Its GPUs by the label C(tgp.io/gpu-count), null without it.
      type: int
    capacity:
      description: How many of the resource it shows.
      type: int
    allocatable:
      description: How many of these are healthy.
      type: int
files:
  description: The files that were written to O(render_to).
  type: list
  elements: str
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.device_plugin.gpu_operator import AUTO, CHART, OPERATOR, REPOSITORY, STANDALONE, VERSION
from ..module_utils.device_plugin.install import install_device_plugin
from ..module_utils.device_plugin.manifests import IMAGE
from ..module_utils.device_plugin.power_limits import IMAGE as POWER_LIMIT_IMAGE
from ..module_utils.device_plugin.remove import remove_device_plugin
from ..module_utils.kube.auth.credentials import CLUSTER_SPEC

SPEC = dict(
    argument_spec=dict(
        state=dict(type="str", choices=["present", "absent"], default="present"),
        profile=dict(type="str", choices=[AUTO, STANDALONE, OPERATOR], default=AUTO),
        replicas=dict(type="int"),
        config=dict(type="raw"),
        configs=dict(type="dict", default={}),
        documents=dict(type="list", elements="raw", default=[]),
        documents_from_cluster=dict(type="bool", default=False),
        node_selector=dict(type="dict"),
        tolerations=dict(
            type="list",
            elements="dict",
            default=[],
            options=dict(
                key=dict(type="str", no_log=False),
                operator=dict(type="str", choices=["Exists", "Equal"], default="Exists"),
                value=dict(type="str"),
                effect=dict(type="str", choices=["NoSchedule", "PreferNoSchedule", "NoExecute"]),
            ),
        ),
        talos_version=dict(type="str"),
        operator_values=dict(type="dict", default={}),
        operator_chart=dict(type="str", default=CHART),
        operator_repository=dict(type="str", default=REPOSITORY),
        operator_version=dict(type="str", default=VERSION),
        helm=dict(type="str", default="helm"),
        image=dict(type="str", default=IMAGE),
        metrics_service=dict(type="bool", default=True),
        power_limits=dict(
            type="dict",
            options=dict(
                watts=dict(type="dict", default={}),
                interval=dict(type="str", default="30m"),
                persistence_mode=dict(type="bool", default=True),
                image=dict(type="str", default=POWER_LIMIT_IMAGE),
            ),
        ),
        timeout=dict(type="int", default=300),
        render_to=dict(type="path"),
        force=dict(type="bool", default=False),
        **CLUSTER_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return remove_device_plugin(task) if task.params["state"] == "absent" else install_device_plugin(task)


if __name__ == "__main__":
    main(SPEC, run)
