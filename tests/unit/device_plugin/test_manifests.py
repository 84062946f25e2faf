# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifests of the device plugin, and the policy: nothing has a power that docs/how_to/gpus.md does not list with its reason (S4-26)."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.config import PluginConfig, of_content, of_replicas
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.kustomize import kustomize_folder
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.manifests import PluginOptions, plugin_objects
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.power_limits import PowerLimits
from ansible_collections.tgp.gpu.plugins.module_utils.kube.pods import placement_of
from ansible_collections.tgp.gpu.plugins.module_utils.model import Taint, Toleration
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.node_affinity import against_taints

Json = dict[str, t.Any]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "how_to" / "gpus.md"
STRICT = ("capabilities", "readOnlyRootFilesystem", "allowPrivilegeEscalation")


def flags(**values: t.Any) -> PluginConfig:
    plugin = {name: values.pop(name) for name in ("passDeviceSpecs", "deviceListStrategy") if name in values}
    return of_content({"version": "v1", "flags": {**values, "plugin": plugin}})


VARIANTS = {
    "always": of_replicas(4),
    "passDeviceSpecs: true": flags(passDeviceSpecs=True),
    "migStrategy: single or mixed": flags(migStrategy="mixed"),
    "deviceListStrategy: cdi-annotations or cdi-cri": flags(deviceListStrategy=["envvar", "cdi-cri"]),
}


def table() -> dict[str, set[str]]:
    """The powers that the page lists, by what needs them."""
    section = PAGE.read_text(encoding="utf-8").partition("## What runs with which rights")[2].partition("\n## ")[0]
    found: dict[str, set[str]] = {}
    for power, needed, reason in re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE):
        assert len(reason) > 20, power
        found.setdefault(needed.strip().strip("`"), set()).add(power)
    return found


def objects(*configs: PluginConfig, **options: t.Any) -> list[Json]:
    return plugin_objects(PluginOptions(configs or (of_replicas(4),), **options))


def daemon_sets(found: t.Iterable[Json]) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in found if one["kind"] == "DaemonSet"}


def powers(pod: Json) -> set[str]:
    """All that a pod's specification has beyond the pod security level "restricted"."""
    found = {f"{word}: true" for word in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace") if pod.get(word)}
    if pod.get("automountServiceAccountToken") is not False or "serviceAccountName" in pod:
        found.add("service account token")
    security = pod.get("securityContext") or {}
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        found.add("no seccomp profile")
    if security.get("runAsUser", 0) == 0:
        found.add("runAsUser: 0")
    read_only = {mount["name"]: mount.get("readOnly", False) for one in pod["containers"] for mount in one["volumeMounts"]}
    for volume in pod["volumes"]:
        if "hostPath" in volume:
            how = "read-only" if read_only[volume["name"]] else "read-write"
            found.add(f"hostPath {volume['hostPath']['path']}, {how}")
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        own = container["securityContext"]
        if own.get("privileged"):
            found.add("privileged: true")
            continue
        if own.get("allowPrivilegeEscalation") is not False:
            found.add("allowPrivilegeEscalation: true")
        if own["capabilities"].get("drop") != ["ALL"]:
            found.add("capabilities are kept")
        found.update(f"capability {one}" for one in own["capabilities"].get("add", []))
    return found


def test_the_table_and_the_manifests_have_the_same_powers() -> None:
    listed = table()
    limited = daemon_sets(objects(power_limits=PowerLimits()))["nvidia-powerlimit"]
    assert powers(limited["spec"]["template"]["spec"]) == listed.pop("device_plugin_power_limits")
    assert set(listed) == set(VARIANTS)
    for needed, config in VARIANTS.items():
        (daemon_set,) = daemon_sets(objects(config)).values()
        assert powers(daemon_set["spec"]["template"]["spec"]) == listed["always"] | listed[needed], needed


@pytest.mark.parametrize(
    ("change", "power"),
    [
        ({"hostNetwork": True}, "hostNetwork: true"),
        ({"hostPID": True}, "hostPID: true"),
        ({"automountServiceAccountToken": True}, "service account token"),
        ({"securityContext": {"runAsUser": 0}}, "no seccomp profile"),
        ({"volumes": [{"name": "config", "hostPath": {"path": "/dev"}}]}, "hostPath /dev, read-only"),
    ],
)
def test_a_manifest_with_more_is_noticed(change: Json, power: str) -> None:
    pod = daemon_sets(objects())["nvidia-device-plugin"]["spec"]["template"]["spec"]
    assert power not in powers(pod) and power in powers({**pod, **change})


def test_every_container_is_read_only_and_has_requests_and_limits() -> None:
    found = [daemon_set for config in VARIANTS.values() for daemon_set in daemon_sets(objects(config)).values()]
    found.append(daemon_sets(objects(power_limits=PowerLimits()))["nvidia-powerlimit"])
    for daemon_set in found:
        (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {*container["resources"]["requests"], *container["resources"]["limits"]} == {"cpu", "memory"}


def test_S4_09_S4_25_S4_28_namespace_runtime_class_and_service() -> None:
    found = {one["kind"]: one for one in objects()}
    assert list(found) == ["Namespace", "RuntimeClass", "ConfigMap", "DaemonSet", "Service"]
    labels = found["Namespace"]["metadata"]["labels"]
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "audit", "warn")} == {"privileged"}
    assert (found["RuntimeClass"]["metadata"]["name"], found["RuntimeClass"]["handler"]) == ("nvidia", "nvidia")
    assert found["Service"]["spec"]["ports"][0]["port"] == 2112
    assert [one["kind"] for one in objects(metrics=False)][-1] == "DaemonSet"
    assert {one["metadata"].get("namespace", "gpu-device-plugin") for one in objects()} == {"gpu-device-plugin"}


def test_S4_02_a_change_of_the_configuration_replaces_the_pods_that_read_it_and_no_others() -> None:
    before = daemon_sets(objects(of_replicas(4), of_replicas(2, "a100")))
    after = daemon_sets(objects(of_replicas(8), of_replicas(2, "a100")))
    assert before["nvidia-device-plugin"]["spec"]["template"] != after["nvidia-device-plugin"]["spec"]["template"]
    assert before["nvidia-device-plugin-a100"] == after["nvidia-device-plugin-a100"]


def test_S4_24_each_node_has_one_daemon_set() -> None:
    """By the label of its configuration; a value that names none gets the default."""
    found = daemon_sets(
        objects(of_replicas(4), of_replicas(2, "a100"), selector={"feature.node.kubernetes.io/pci-10de.present": "true"})
    )

    def terms(name: str) -> list[tuple[str, str, tuple[str, ...]]]:
        placement = placement_of(found[name]["spec"]["template"]["spec"], "gpu-device-plugin")
        return [(one.key, one.operator, one.values) for term in placement.terms for one in term.labels]

    selected = ("feature.node.kubernetes.io/pci-10de.present", "In", ("true",))
    assert terms("nvidia-device-plugin") == [selected, ("nvidia.com/device-plugin.config", "NotIn", ("a100",))]
    assert terms("nvidia-device-plugin-a100") == [selected, ("nvidia.com/device-plugin.config", "In", ("a100",))]
    selectors = [one["spec"]["selector"]["matchLabels"] for one in found.values()]
    assert selectors[0] != selectors[1]
    assert terms("nvidia-device-plugin") != [] and "nvidia.com/gpu.present" in str(objects())


def test_the_taints_of_our_nodes_are_tolerated_and_others_are_not() -> None:
    tolerations = (*PluginOptions((of_replicas(1),)).tolerations, Toleration("team", "Equal", "vision", "NoSchedule"))
    (daemon_set,) = daemon_sets(objects(tolerations=tolerations)).values()
    placement = placement_of(daemon_set["spec"]["template"]["spec"], "gpu-device-plugin")
    ours = [
        Taint(key, "true", "NoSchedule") for key in ("nvidia.com/gpu", "tgp.io/ephemeral", "tgp.io/initializing", "tgp.io/gpu-lost")
    ]
    assert against_taints(placement, [*ours, Taint("team", "vision", "NoSchedule")]) == ""
    assert against_taints(placement, [Taint("team", "audio", "NoSchedule")]) != ""


@pytest.mark.parametrize(("talos", "overridden"), [(None, False), ((1, 12), False), ((1, 13), True), ((1, 14), True)])
def test_the_path_of_the_cdi_hook_is_that_of_talos_since_1_13(talos: tuple[int, int] | None, overridden: bool) -> None:
    (daemon_set,) = daemon_sets(objects(talos=talos)).values()
    environment = {one["name"]: one["value"] for one in daemon_set["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert environment.get("NVIDIA_CDI_HOOK_PATH") == ("/usr/local/bin/nvidia-cdi-hook" if overridden else None)
    assert environment["CONFIG_FILE"] == "/etc/nvidia-device-plugin/config.yaml"


def test_the_release_that_nodes_run_counts_where_the_hook_is_used() -> None:
    """Nodes that join later do not change a plugin that does not use it."""
    used = objects(VARIANTS["deviceListStrategy: cdi-annotations or cdi-cri"], talos_seen=(1, 13))
    assert "NVIDIA_CDI_HOOK_PATH" in str(used) and "NVIDIA_CDI_HOOK_PATH" not in str(objects(talos_seen=(1, 13)))


def test_ansible_s_own_types_become_plain_text() -> None:
    """Numbers and texts of a playbook are subclasses, which YAML cannot represent."""
    number, text = type("TaggedInt", (int,), {}), type("TaggedStr", (str,), {})
    files = kustomize_folder(objects(of_replicas(number(4)), selector={text("gpu"): text("yes")}))
    assert (
        "replicas: 4" in files["configmap-nvidia-device-plugin-config.yaml"]
        and "'yes'" in files["daemonset-nvidia-device-plugin.yaml"]
    )


def test_S4_07_the_folder_names_each_file_once() -> None:
    files = kustomize_folder(objects(of_replicas(4), of_replicas(2, "a100")))
    assert [name for name in files if f"- {name}\n" not in files["kustomization.yaml"]] == ["kustomization.yaml"]
    assert len(files) == 7 and "replicas: 4" in files["configmap-nvidia-device-plugin-config.yaml"]
