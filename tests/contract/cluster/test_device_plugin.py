# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module ``device_plugin`` against an API server: applied once, drift, neighbours, waiting, and the folder for kustomize."""

from __future__ import annotations

import copy
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.modules import device_plugin

from sandbox import device_plugin as plugin_of_others

from .conftest import Cluster

NAMESPACE = "gpu-device-plugin"
SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONFIG = f"/api/v1/namespaces/{NAMESPACE}/configmaps/nvidia-device-plugin-config"
OTHERS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
GPU_NODE = {"nvidia.com/gpu.present": "true", "tgp.io/gpu-count": "2"}
Json = dict[str, t.Any]


@pytest.fixture
def speed() -> float:
    return 50.0


@pytest.fixture
def run(cluster: Cluster, served: Path) -> t.Callable[..., Json]:
    """The module's result; it waits in the cluster's time."""

    def executed(*, check: bool = False, **params: t.Any) -> Json:
        given = {name: option.get("default") for name, option in device_plugin.SPEC["argument_spec"].items()}
        task = Task(
            {**copy.deepcopy(given), "kubeconfig": str(served), **params}, check_mode=check, diff_mode=True, clock=cluster.clock
        )
        return execute(device_plugin.SPEC, device_plugin.run, task, "device_plugin")

    return executed


def power_limits(**given: t.Any) -> Json:
    """The option as Ansible hands it over, with its defaults."""
    options = device_plugin.SPEC["argument_spec"]["power_limits"]["options"]
    return {**{name: option["default"] for name, option in options.items()}, **given}


def results(found: Json) -> dict[str, str]:
    assert not found.get("failed"), found["msg"]
    return {f"{one['kind']} {one['name']}": one["result"] for one in found["objects"]}


def ready(cluster: Cluster, capacity: int) -> None:
    """What a kubelet does: the plugin's pods become Ready, and the node shows its GPUs."""
    for pod in cluster.must("GET", PODS)["items"]:
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        cluster.must("PATCH", f"{PODS}/{pod['metadata']['name']}/status", {"status": status})
    cluster.report("n1", gpus=capacity)


def test_S4_07_it_is_applied_once_and_a_second_run_only_reads(run: t.Callable[..., Json], cluster: Cluster) -> None:
    foreseen = run(replicas=4, check=True)
    assert set(results(foreseen).values()) == {"created"} and cluster.read(SETS) == {
        **t.cast("Json", cluster.read(SETS)),
        "items": [],
    }
    first = run(replicas=4)
    assert results(first) == results(foreseen) and len(first["diff"]) == 5 and first["nodes"] == []
    before = cluster.writes()
    for again in (run(replicas=4), run(replicas=4, check=True)):
        assert set(results(again).values()) == {"unchanged"} and not again["changed"] and again["diff"] == []
    assert cluster.writes() == before


def test_drift_is_taken_back_and_a_field_that_is_not_wanted_any_more_goes(run: t.Callable[..., Json], cluster: Cluster) -> None:
    run(replicas=4, talos_version="1.13.9", profile="standalone")
    cluster.must("PATCH", f"{SETS}/nvidia-device-plugin", {"metadata": {"labels": {"app.kubernetes.io/name": "x"}}})
    told = run(replicas=4, talos_version="1.13.9", profile="standalone")
    assert told["failed"] and "app.kubernetes.io/name" in told["msg"] and "force=true" in told["msg"]
    changed = run(replicas=4, talos_version="1.13.9", force=True)
    assert [name for name, result in results(changed).items() if result != "unchanged"] == ["DaemonSet nvidia-device-plugin"]
    without = run(replicas=4)
    assert results(without)["DaemonSet nvidia-device-plugin"] == "changed"
    assert "NVIDIA_CDI_HOOK_PATH" not in str(cluster.read(f"{SETS}/nvidia-device-plugin"))


def test_a_configuration_that_is_taken_out_goes_with_its_daemon_set(run: t.Callable[..., Json], cluster: Cluster) -> None:
    run(replicas=4, configs={"whole": 1})
    assert set(t.cast("Json", cluster.read(CONFIG))["data"]) == {"config.yaml", "whole"}
    assert results(run(replicas=4, check=True))["DaemonSet nvidia-device-plugin-whole"] == "removed"
    cluster.must("POST", SETS, {**plugin_of_others.manifest(), "metadata": {"name": "exporter", "namespace": NAMESPACE}})
    assert results(run(replicas=4, force=True))["DaemonSet nvidia-device-plugin-whole"] == "removed"
    assert [one["metadata"]["name"] for one in cluster.must("GET", SETS)["items"]] == ["exporter", "nvidia-device-plugin"]
    assert set(t.cast("Json", cluster.read(CONFIG))["data"]) == {"config.yaml"}


def test_S4_03_power_limits_come_and_go_with_their_option(run: t.Callable[..., Json], cluster: Cluster) -> None:
    limits = power_limits(watts={"Tesla T4": 65}, interval="5m")
    first = results(run(power_limits=limits, timeout=0))
    assert (first["ConfigMap nvidia-powerlimit"], first["DaemonSet nvidia-powerlimit"]) == ("created", "created")
    pod = t.cast("Json", cluster.read(f"{SETS}/nvidia-powerlimit"))["spec"]["template"]["spec"]
    assert {"name": "INTERVAL_SECONDS", "value": "300"} in pod["containers"][0]["env"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod["tolerations"]
    before = len(cluster.writes())
    assert not run(power_limits=limits, timeout=0)["changed"] and len(cluster.writes()) == before
    gone = {"DaemonSet nvidia-powerlimit": "removed", "ConfigMap nvidia-powerlimit": "removed"}
    assert results(run(check=True, timeout=0)).items() >= gone.items() and cluster.read(f"{SETS}/nvidia-powerlimit")
    assert results(run(timeout=0)).items() >= gone.items()
    assert cluster.read(f"{SETS}/nvidia-powerlimit") is None


def test_S4_27_nothing_is_installed_beside_another_plugin(run: t.Callable[..., Json], cluster: Cluster) -> None:
    cluster.must("POST", OTHERS, plugin_of_others.manifest())
    before = cluster.writes()
    told = run(replicas=4)
    assert told["failed"] and "kubectl delete daemonset nvidia-device-plugin-daemonset --namespace kube-system" in told["msg"]
    assert cluster.writes() == before
    assert set(results(run(replicas=4, force=True)).values()) == {"created"}


def test_what_was_applied_goes_and_what_others_have_stays(run: t.Callable[..., Json], cluster: Cluster) -> None:
    """Refused while a pod of its node has a GPU; those on nodes of other plugins, and finished ones, do not count."""
    cluster.node("n1", labels=GPU_NODE)
    cluster.node("n2")
    run(replicas=4, timeout=0, power_limits=power_limits(watts={"Tesla T4": 65}), configs={"whole": 1})
    cluster.must("POST", OTHERS, plugin_of_others.manifest())
    cluster.clock.sleep(20)
    ready(cluster, 8)
    for name, node, phase in (("job", "n1", "Running"), ("elsewhere", "n2", "Running"), ("over", "n1", "Succeeded")):
        limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}}
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i", **limits}]}
        cluster.must("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})
        cluster.must("PATCH", f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"phase": phase}})
    before = cluster.writes()
    told = run(state="absent")
    assert told["failed"] and told["msg"].count("pod default/") == 1 and "pod default/job on node n1" in told["msg"]
    assert "force=true" in told["msg"] and cluster.writes() == before
    foreseen = run(state="absent", force=True, check=True)
    assert cluster.writes() == before and len(foreseen["diff"]) == len(foreseen["objects"]) == 8
    assert all(one["after"] == "" and one["before"] for one in foreseen["diff"])
    assert results(run(state="absent", force=True, timeout=1)) == results(foreseen) and set(results(foreseen).values()) == {
        "removed"
    }
    assert "deletionTimestamp" in t.cast("Json", cluster.read("/api/v1/namespaces/gpu-device-plugin"))["metadata"], (
        "no kubelet ends its pods"
    )
    assert cluster.read("/apis/node.k8s.io/v1/runtimeclasses/nvidia") is None
    assert len(cluster.must("GET", OTHERS)["items"]) == 1
    before = cluster.writes()
    again = run(state="absent")
    assert not again["changed"] and again["objects"] == again["diff"] == [] and cluster.writes() == before
    assert "kubectl delete -k" in run(state="absent", render_to="/nowhere")["msg"]


def test_a_namespace_and_a_runtime_class_that_others_use_stay(run: t.Callable[..., Json], cluster: Cluster) -> None:
    run(replicas=4, timeout=0)
    exporter = {**plugin_of_others.manifest(), "metadata": {"name": "exporter", "namespace": NAMESPACE}}
    exporter["spec"]["template"]["spec"]["runtimeClassName"] = "nvidia"
    cluster.must("POST", SETS, exporter)
    gone = results(run(state="absent"))
    assert set(gone) == {
        "DaemonSet nvidia-device-plugin",
        "ConfigMap nvidia-device-plugin-config",
        "Service nvidia-device-plugin-metrics",
    }
    assert not run(state="absent")["changed"] and cluster.read(SETS)["items"]  # type: ignore[index]
    cluster.must("DELETE", f"{SETS}/exporter")
    foreign = {"metadata": {"name": "tokens"}, "stringData": {"a": "b"}}
    cluster.must("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", foreign)
    assert set(results(run(state="absent"))) == {"RuntimeClass nvidia"}
    cluster.must("DELETE", f"/api/v1/namespaces/{NAMESPACE}/secrets/tokens")
    assert set(results(run(state="absent"))) == {"Namespace gpu-device-plugin"}
    assert cluster.read("/api/v1/namespaces/gpu-device-plugin") is None


def test_S4_08_S4_10_it_waits_until_the_node_shows_gpus_times_replicas(run: t.Callable[..., Json], cluster: Cluster) -> None:
    cluster.node("n1", labels=GPU_NODE)
    late = run(replicas=4, timeout=20)
    assert late["failed"] and late["error"]["kind"] == "timeout" and late["changed"]
    assert "not ready after 20 s" in late["msg"] and "node n1: pod nvidia-device-plugin-" in late["msg"]
    assert "n1 shows 0 nvidia.com/gpu instead of 8" in late["msg"]

    ready(cluster, 2)
    wrong = run(replicas=4, timeout=20)
    assert "n1 shows 2 nvidia.com/gpu instead of 8 (2 GPUs x replicas): its plugin runs with another configuration" in wrong["msg"]
    assert [one["capacity"] for one in wrong["nodes"]] == [2]

    ready(cluster, 8)
    good = run(replicas=4, timeout=20)
    assert not good.get("failed") and not good["changed"]
    (node,) = good["nodes"]
    assert (node["name"], node["gpus"], node["capacity"]) == ("n1", 2, 8)


def test_a_change_of_the_configuration_replaces_the_pods(run: t.Callable[..., Json], cluster: Cluster) -> None:
    cluster.node("n1", labels=GPU_NODE)
    run(replicas=4, timeout=0)
    cluster.clock.sleep(20)
    ready(cluster, 8)
    (old,) = cluster.must("GET", PODS)["items"]
    told = run(replicas=2, timeout=20)
    assert told["failed"] and told["changed"] and results({**told, "failed": False})["DaemonSet nvidia-device-plugin"] == "changed"
    pods = cluster.must("GET", PODS)["items"]
    assert [
        pod for pod in pods if pod["metadata"]["uid"] == old["metadata"]["uid"] and "deletionTimestamp" not in pod["metadata"]
    ] == []


def test_a_folder_needs_no_cluster(run: t.Callable[..., Json], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    written = run(replicas=4, render_to=str(folder), kubeconfig="/nowhere")
    assert written["changed"] and written["objects"] == [] and len(written["files"]) == len(list(folder.iterdir())) == 6
    assert not run(replicas=4, render_to=str(folder), kubeconfig="/nowhere")["changed"]
    assert "force=true" in run(replicas=2, render_to=str(folder))["msg"]
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    kinds = [yaml.safe_load((folder / name).read_text())["kind"] for name in kustomization["resources"]]
    assert kinds == ["Namespace", "RuntimeClass", "ConfigMap", "DaemonSet", "Service"]


HELM = """#!/bin/sh
echo "$@" >>{folder}/calls
env >>{folder}/environment
case "$1 $2" in
  "list "*) [ -f {folder}/values ] && echo '[{{"chart":"gpu-operator-v26.7.0","status":"deployed"}}]' || echo '[]' ;;
  "get values") cat {folder}/values ;;
  "uninstall "*) rm {folder}/values ;;
  "upgrade --install")
    while [ "$1" != --values ]; do shift; done
    {python} -c 'import json,sys,yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))' "$2" >{folder}/values ;;
esac
"""


def test_profile_operator_calls_helm_when_something_differs(
    run: t.Callable[..., Json], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for helm; NVIDIA's chart was not at hand."""
    helm = tmp_path / "helm"
    helm.write_text(HELM.format(folder=tmp_path, python=sys.executable))
    helm.chmod(0o755)
    monkeypatch.setenv("LAMBDA_API_KEY", "made-up-key")
    cluster.node("n1", labels=GPU_NODE, gpus=8)
    given: Json = {"profile": "operator", "replicas": 4, "helm": str(helm)}
    assert results(run(check=True, **given))["HelmRelease gpu-operator"] == "changed" and not (tmp_path / "values").exists()
    first = run(**given)
    assert first["profile"] == "operator" and [one["capacity"] for one in first["nodes"]] == [8]
    upgrades = [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("upgrade")]
    assert len(upgrades) == 1 and "--repo https://helm.ngc.nvidia.com/nvidia --version v26.7.0" in upgrades[0]
    assert "--namespace gpu-operator --kubeconfig" in upgrades[0] and "made-up-key" not in (tmp_path / "environment").read_text()
    before = cluster.writes()
    assert not run(**given)["changed"] and cluster.writes() == before
    assert run(**given, operator_values={"nfd": {"enabled": False}})["changed"]

    before = cluster.writes()
    assert (
        "choose profile=standalone" in run(profile="operator", replicas=2, helm="/nowhere/helm")["msg"]
        and cluster.writes() == before
    )
    run(profile="standalone", replicas=4, timeout=0)
    refused = run(**given)
    assert refused["failed"] and "kubectl delete runtimeclass nvidia" in refused["msg"]
    assert run(replicas=4, timeout=0)["profile"] == "standalone", "auto keeps what is installed"
    removed = results(run(state="absent", helm=str(helm)))
    assert {"HelmRelease gpu-operator", "Namespace gpu-operator", "Namespace gpu-device-plugin"} <= set(removed)
    assert not (tmp_path / "values").exists() and not run(state="absent", helm="/nowhere/helm")["changed"]


def test_the_folder_of_the_operator_has_its_values_and_a_release_for_flux(run: t.Callable[..., Json], tmp_path: Path) -> None:
    folder = tmp_path / "operator"
    told = run(replicas=4, talos_version="1.13.9", render_to=str(folder))
    assert told["profile"] == "operator"
    values = yaml.safe_load((folder / "values.yaml").read_text())
    assert yaml.safe_load((folder / "helmrelease-gpu-operator.yaml").read_text())["spec"]["values"] == values
    assert "values.yaml" not in (folder / "kustomization.yaml").read_text()


def pools(**template: t.Any) -> list[Json]:
    node_class = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodeClass",
        "metadata": {"name": "c"},
        "spec": {"providers": [{"name": "lambda"}]},
    }
    inner = {"taints": [{"key": "team", "value": "vision", "effect": "NoSchedule"}]}
    spec = {"nodeClassRef": {"name": "c"}, "template": {"metadata": template, "spec": inner}, "timeSlicing": {"replicas": 4}}
    return [node_class, {"apiVersion": "tgp.io/v1", "kind": "GPUNodePool", "metadata": {"name": "p"}, "spec": spec}]


def test_the_pools_of_the_documents_decide_replicas_and_tolerations(run: t.Callable[..., Json], cluster: Cluster) -> None:
    assert not run(documents=pools()).get("failed")
    assert "replicas: 4" in t.cast("Json", cluster.read(CONFIG))["data"]["config.yaml"]
    spec = t.cast("Json", cluster.read(f"{SETS}/nvidia-device-plugin"))["spec"]["template"]["spec"]
    assert {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"} in spec["tolerations"]
    assert "p: its timeSlicing makes 4 nvidia.com/gpu of each GPU, and the default" in run(documents=pools(), replicas=2)["msg"]
    labelled = pools(labels={"nvidia.com/device-plugin.config": "quarters"})
    assert not run(documents=labelled, replicas=1, configs={"quarters": 4}).get("failed")


def test_L52_a_pool_with_mps_needs_the_operator_which_runs_its_daemon(
    run: t.Callable[..., Json], cluster: Cluster, tmp_path: Path
) -> None:
    """The stand-alone plugin would wait for the daemon for ever. A pool and its configuration share in the same way."""
    documents = pools()
    documents[1]["spec"]["mps"] = documents[1]["spec"].pop("timeSlicing")
    refused = run(documents=documents)
    assert refused["failed"] and cluster.writes() == []
    assert "MPS (sharing.mps of config.yaml) needs NVIDIA's MPS control daemon on each node" in refused["msg"], refused["msg"]
    assert "profile=operator" in refused["msg"]
    assert "control daemon" in run(documents=documents, render_to=str(tmp_path / "alone"), profile="standalone")["msg"]
    assert (
        "p: its mps and the default configuration differ, which shares GPUs by timeSlicing."
        in run(documents=documents, replicas=4)["msg"]
    )
    rendered = run(documents=documents, render_to=str(tmp_path / "operator"), profile="operator")
    assert not rendered.get("failed"), rendered
    texts = [path.read_text() for path in (tmp_path / "operator").rglob("*.yaml")]
    (config,) = [text for text in texts if "kind: ConfigMap" in text]
    assert "mps:" in config and "replicas: 4" in config and "timeSlicing" not in config


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
@pytest.mark.parametrize("key", ["", "divided"])
def test_L52_a_pool_with_mig_profiles_needs_a_configuration_of_strategy_mixed(
    run: t.Callable[..., Json], cluster: Cluster, strategy: str, key: str
) -> None:
    """That of its nodes: the default one, or the one that their label names. Without any configuration the strategy is none."""
    documents = pools(labels={"nvidia.com/device-plugin.config": key}) if key else pools()
    del documents[1]["spec"]["timeSlicing"]
    documents[1]["spec"]["mig"] = {"profiles": {"1g.10gb": 7}}
    config = {"version": "v1", "flags": {"migStrategy": strategy}}
    params: Json = {"replicas": 1, "configs": {key: config}} if key else {"config": config}
    told = run(documents=documents, **params)
    if strategy == "mixed":
        assert not told.get("failed") and cluster.writes()
        return
    name = f"configuration {key}" if key else "the default configuration"
    assert told["failed"] and cluster.writes() == []
    assert f"p: its mig needs flags.migStrategy: mixed, and {name} has {strategy}." in told["msg"]
    if not key:
        assert "the default configuration has none" in run(documents=documents)["msg"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"replicas": 0}, "replicas: 0 is too small"),
        ({"replicas": 2, "config": {"version": "v1"}}, "replicas and config exclude each other"),
        ({"config": {"version": "v1", "sharring": {}}}, "sharring: unknown field. Did you mean sharing?"),
        ({"config": "/nowhere.yaml"}, "config: /nowhere.yaml cannot be read"),
        ({"config": 4}, "config: a mapping or the path of a file is needed, not 4"),
        ({"configs": {"A100": 4}}, "'A100' is not a name for a configuration"),
        ({"configs": {"whole": 0}}, "configs: whole: a mapping or the path of a file is needed"),
        (
            {"power_limits": power_limits(watts={"Tesla T4": 5})},
            "power_limits[Tesla T4] must be a whole number of watts from 10 to 2000",
        ),
        ({"power_limits": power_limits(interval="soon")}, 'power_limits: interval: "soon" is not a duration'),
        ({"talos_version": "new"}, "talos_version: 'new' is not a release of Talos"),
    ],
)
def test_wrong_options_end_it_before_anything_is_done(
    run: t.Callable[..., Json], cluster: Cluster, params: Json, words: str
) -> None:
    told = run(**params)
    assert told["failed"] and words in told["msg"] and cluster.writes() == []
