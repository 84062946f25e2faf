# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lane kubelet with a real kubelet, containerd, runc and CNI plugins: the user data of a machine of Lambda is carried out as cloud-init
would, the bootstrap program runs from its first line to its last, and the node that comes of it runs a pod and goes again.

What is played, because it cannot be here, stands in machine.py: apt, systemd, the driver, kernel settings, the mesh client.
"""

from __future__ import annotations

import base64
import copy
import json
import pathlib
import re
import subprocess
import tempfile
import time
import typing as t
import urllib.parse
from datetime import datetime, timedelta, timezone

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock, from_text, to_text
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.facts import Findings
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.rules import Diagnosis, diagnose
from ansible_collections.tgp.gpu.plugins.module_utils.kube import bootstrap_tokens, csr, nodes
from ansible_collections.tgp.gpu.plugins.module_utils.kube.nodes import get_node
from ansible_collections.tgp.gpu.plugins.module_utils.kube.wait import Expected, NodeOutcome, wait_for
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane, Taint
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.registration import not_initialized
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import capacity
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES
from ansible_collections.tgp.gpu.plugins.module_utils.talos.secrets import read
from ansible_collections.tgp.gpu.plugins.module_utils.talos.spec import NodeSpec
from ansible_collections.tgp.gpu.plugins.modules import node_drain

from tests.build import CannotBuild, built
from tests.cluster import objects
from tests.cluster.helm_cli import Helm, HelmFailed
from tests.fixtures.bootstrap_tokens import make_token
from tests.fixtures.talos_nodes import BUNDLE, make
from tests.unit.fleet.build import claim, offer, pool

from . import container_file, image
from .conftest import Stand
from .gpu_shares import DevicePlugin
from .machine import Machine
from .own_machine import OwnMachine
from .stand import CGROUPS, PREFIX, make_cgroup, sweep

pytestmark = pytest.mark.node
STEPS = ["preflight", "apt-lock", "kernel", "driver", "mesh", "api", "containerd", "kubelet", "erase", "done"]
LABELS = {"tgp.io/nodepool": "ml", "node.kubernetes.io/instance-type": "gpu_1x_a10", "topology.kubernetes.io/region": "us-west-1"}
TAINTS = (Taint("gpu-node", "true", "NoSchedule"),)
STARTUP = (Taint("tgp.io/initializing", "", "NoSchedule"),)


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


def user_data(stand: Stand, name: str, token: str) -> tuple[NodeSpec, str]:
    """What Lambda would be handed for this machine."""
    authority = base64.b64encode(stand.plane.ca_pem.encode()).decode()
    certs = {**BUNDLE["certs"], "k8s": {**BUNDLE["certs"]["k8s"], "crt": authority}}
    spec = make(
        name=name,
        lane=Lane.KUBELET,
        secrets=read({**BUNDLE, "certs": certs}),
        endpoint=stand.plane.server,
        bootstrap_token=token,
        labels=LABELS,
        taints=TAINTS,
        startup_taints=STARTUP,
    )
    return spec, payload(spec, capability=CAPABILITIES["lambda"]).text


def joined(stand: Stand, name: str, token: bootstrap_tokens.Token, seconds: float = 60) -> NodeOutcome:
    """The wait of a join, which answers the machine's certificate request."""
    end = _now() + timedelta(seconds=seconds)
    expected = Expected(
        name=name, claim=name, deadline=end, missing=lambda node: [] if node.ready else ["Ready"], launched=_now(), token=token.id
    )
    return wait_for(stand.kube, [expected], clock=SystemClock())[name]


def explained(machine: Machine, name: str, **facts: t.Any) -> Diagnosis:
    """What a user is told, from nothing but what the machine said on its console."""
    return diagnose(
        Findings(name=name, now=_now(), lane=Lane.KUBELET, cloud="lambda", console=tuple(machine.log), requests_read=True, **facts)
    )


class Node(t.NamedTuple):
    machine: Machine
    spec: NodeSpec
    token: bootstrap_tokens.Token
    outcome: NodeOutcome
    seconds: float


@pytest.fixture(scope="module")
def node(stand: Stand, idle: pathlib.Path) -> t.Iterator[Node]:
    """One machine that became a node."""
    name = "tgp-a1b2c3d4-ml-0k3zq"
    token = make_token(stand.kube, name, now=_now(), groups=bootstrap_tokens.OWN_GROUP)
    spec, text = user_data(stand, name, token.text)
    with stand.machine() as machine:
        machine.install(spec.kubernetes_version)
        begun = time.monotonic()
        machine.boot(text)
        outcome = joined(stand, name, token)
        seconds = time.monotonic() - begun
        machine.until(lambda: machine.step == "done" or machine.step.startswith("fail"), 120, "the end of the bootstrap program")
        machine.run("ctr", "--namespace=k8s.io", "images", "import", "-", given=image.archive(idle))
        yield Node(machine, spec, token, outcome, seconds)


def test_the_rendered_user_data_makes_a_node(stand: Stand, node: Node) -> None:
    assert node.outcome.ready, (node.outcome, node.machine.text("/var/log/kubelet.service.log")[-2000:])
    assert [line.removeprefix("tgp-step ") for line in node.machine.log if line.startswith("tgp-step ")] == STEPS
    found = objects.node(stand.plane, node.spec.name) or {}
    info = found["status"]["nodeInfo"]
    assert info["containerRuntimeVersion"].startswith("containerd://2.")
    assert info["kubeletVersion"] == f"v{node.spec.kubernetes_version}"
    print(f"Ready {node.seconds:.1f} s after cloud-init began, {info['containerRuntimeVersion']}, kubelet {info['kubeletVersion']}")


def test_the_node_registered_with_our_labels_taints_and_address(stand: Stand, node: Node) -> None:
    found = objects.node(stand.plane, node.spec.name) or {}
    assert found["metadata"]["labels"].items() >= LABELS.items()
    there = {(one["key"], one.get("value", ""), one["effect"]) for one in found["spec"]["taints"]}
    assert there >= {(one.key, one.value, one.effect) for one in (*TAINTS, *STARTUP)}
    addresses = {one["type"]: one["address"] for one in found["status"]["addresses"]}
    assert addresses == {"InternalIP": node.machine.address, "Hostname": node.spec.name}


def test_its_flags_are_those_of_the_rendered_unit(node: Node) -> None:
    """The unit that the program wrote is what ran: the stand adds one flag, the folder of its own deviations."""
    unit = node.machine.text("/etc/systemd/system/kubelet.service.d/20-tgp.conf").replace("\\\n", " ")
    written = next(line for line in unit.splitlines() if line.startswith("ExecStart=/"))
    running = [
        words[2:]
        for path in (node.machine.root / "proc").glob("[0-9]*/cmdline")
        if (words := path.read_text().split("\0")[:-1])[:2] == ["plane", "kubelet"]
    ]
    assert len(running) == 1
    rest = [word for word in running[0] if not word.startswith(("--bootstrap-kubeconfig=", "--config-dir="))]
    assert rest == written.removeprefix("ExecStart=/usr/bin/kubelet").split()
    assert f"--node-ip={node.machine.address}" in rest and f"--hostname-override={node.spec.name}" in rest


def test_its_request_was_approved_by_us_and_its_secrets_are_gone(stand: Stand, node: Node) -> None:
    (request,) = csr.requests(stand.kube, token_id=node.token.id)
    assert (request.state, request.node, request.message) == (
        "issued",
        node.spec.name,
        f"asked by the bootstrap token made for {node.spec.name}",
    )
    for path in ("/etc/tgp/bootstrap-kubeconfig", "/etc/tgp/authkey", "/etc/tgp/api.header"):
        assert not (node.machine.root / path.lstrip("/")).exists()
    assert "--bootstrap-kubeconfig" not in node.machine.text("/etc/systemd/system/kubelet.service.d/20-tgp.conf")
    assert "server: https://127.0.0.1:7445" in node.machine.text("/etc/kubernetes/kubelet.conf")


def _pod(stand: Stand, name: str, node: str, *args: str, **more: t.Any) -> None:
    tolerations = [{"key": one.key, "operator": "Exists"} for one in (*TAINTS, *STARTUP)]
    container = {"name": "main", "image": image.NAME, "imagePullPolicy": "Never", "args": list(args)}
    spec = {"containers": [container], "tolerations": tolerations, "nodeName": node, "terminationGracePeriodSeconds": 5, **more}
    objects.pod(stand.plane, "default", name, spec)


def _phase(stand: Stand, name: str) -> str:
    return str((stand.plane.find(f"/api/v1/namespaces/default/pods/{name}") or {"status": {}})["status"].get("phase") or "")


def _said(stand: Stand, name: str) -> str:
    return stand.plane.http.get(f"/api/v1/namespaces/default/pods/{name}/log").text


def test_a_pod_runs_and_is_heard_through_the_api_server(stand: Stand, node: Node) -> None:
    _pod(stand, "job", node.spec.name)
    stand.plane.until(lambda: _phase(stand, "job") == "Running", what="the pod to run")
    stand.plane.until(lambda: _said(stand, "job") == "hello from a pod\n", what="its log")
    assert stand.plane.find("/api/v1/namespaces/default/pods/job")["status"]["podIP"].startswith("172.31.219.")  # type: ignore[index]
    assert "2\n" in node.machine.run("sh", "-c", "ctr --namespace=k8s.io tasks list --quiet | wc -l")


def test_a_command_is_run_in_the_pod_through_the_api_server(stand: Stand, node: Node) -> None:
    from kubernetes import client, config
    from kubernetes.stream import stream

    with config.new_client_from_config(str(stand.plane.kubeconfig)) as api:
        answer = stream(
            client.CoreV1Api(api).connect_get_namespaced_pod_exec,
            "job", "default", command=["/idle", "say", "from", "inside"], stdout=True, stderr=True, stdin=False, tty=False,
        )  # fmt: skip
    assert answer == "from inside\n"


@pytest.mark.parametrize(("name", "host", "url"), [
    ("forwarded", True, "https://127.0.0.1:7445/version"),  # as Talos's own DaemonSets do
    ("bridged", False, None),  # through the bridge of the rendered CNI configuration, masqueraded
])  # fmt: skip
def test_pods_reach_the_api_server(stand: Stand, node: Node, name: str, host: bool, url: str | None) -> None:
    _pod(stand, name, node.spec.name, "get", url or f"{stand.plane.server}/version", hostNetwork=host, restartPolicy="Never")
    stand.plane.until(lambda: _phase(stand, name) in ("Succeeded", "Failed"), what="the pod to end")
    assert (_phase(stand, name), _said(stand, name)) == ("Succeeded", "401\n")  # strangers are not served, as in Talos
    stand.plane.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=0)


def test_time_slicing_with_the_configuration_of_our_role(
    stand: Stand, node: Node, idle: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    """Four pods share one of two GPUs, a pod that asks for two shares is refused, and the shares are back after a restart of the kubelet.

    Manifests and configuration are those of our role. The program in their image is one of ours (device_plugin/main.go), which obeys the
    configuration as NVIDIA's does. It is not proven on real GPUs.
    """
    with DevicePlugin(stand.plane, stand.kube, node.machine, node.spec.name, built("device-plugin", request)) as plugin:
        plugin.until_shown(8, 8)
        assert plugin.apply() == {"unchanged"}
        greedy = plugin.pod("greedy", 2)
        stand.plane.until(lambda: plugin.phase(greedy) == "Failed", what="the pod with two shares to be refused")
        refused = plugin.status(greedy)
        assert refused["reason"] == "UnexpectedAdmissionError"
        assert "maximum request size for shared resources is 1; found 2" in refused["message"], refused
        plugin.unhealthy("GPU-1")
        plugin.until_shown(8, 4)  # the kubelet still counts what is unhealthy, and gives none of it
        shares = [plugin.pod(f"share-{number}", 1) for number in range(4)]
        stand.plane.until(lambda: {plugin.phase(name) for name in shares} == {"Running"}, what="four pods to run on one GPU")
        assert plugin.visible() == ["GPU-0"] * 4
        node.machine.run("systemctl", "restart", "kubelet")
        stand.plane.until(lambda: plugin.registrations() == 2, what="the plugin to register with the new kubelet")
        plugin.unhealthy()
        plugin.until_shown(8, 8)
        assert {plugin.phase(name) for name in shares} == {"Running"}


def test_L52_pods_of_mig_profiles_run_and_the_node_is_complete_by_its_instances(
    stand: Stand, node: Node, idle: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    """The real kubelet and scheduler with a resource for each profile, by the configuration of our role (strategy mixed).

    The Node shows what our plan of an offer with two GPUs has, under the same names, and is complete with all of it: one unhealthy instance is
    missing. Pods get instances of their profile, and one that finds none waits. MIG itself is not there: the program reads the layout.
    """
    layout = {"1g.10gb": 2, "1g.10gb+me": 1, "3g.40gb": 1}
    small, media, large = (f"nvidia.com/mig-{name}" for name in ("1g.10gb", "1g.10gb.me", "3g.40gb"))
    wanted = pool(mig=tuple(sorted(layout.items())))
    two = offer(model="H100-SXM", gpu_memory_mib=81559, gpu_count=2)
    planned = capacity.planned_resources(two, wanted)
    assert planned == {small: 4, media: 2, large: 2}
    mine = claim(offer=two, expected_gpus=sum(planned.values()))

    def missing() -> list[str]:
        found = get_node(stand.kube, node.spec.name)
        assert found is not None
        return [one for one in not_initialized(mine, found, wanted) if "mig" in one.lower()]

    program = built("device-plugin", request)
    with DevicePlugin(stand.plane, stand.kube, node.machine, node.spec.name, program, layout) as plugin:
        for resource, number in planned.items():
            plugin.until_shown(number, number, resource)
        assert missing() == []
        plugin.unhealthy("MIG-GPU-0-3g.40gb-0")
        plugin.until_shown(2, 1, large)
        assert missing() == [f"1 of 2 {large}"]
        plugin.unhealthy()
        plugin.until_shown(2, 2, large)
        pods = [
            plugin.pod("film", 1, media),
            plugin.pod("video", 1, media),
            plugin.pod("train", 1, large),
            plugin.pod("pair", 2, small),
        ]
        stand.plane.until(
            lambda: {plugin.phase(name) for name in pods} == {"Running"}, what="pods to run on instances of their profiles"
        )
        seen = sorted(one for words in plugin.visible() for one in words.split(","))
        assert [one for one in seen if "+me" in one] == ["MIG-GPU-0-1g.10gb+me-0", "MIG-GPU-1-1g.10gb+me-0"]
        assert [sum(name in one for one in seen) for name in ("3g.40gb", "1g.10gb-")] == [1, 2], seen
        third = plugin.pod("third", 1, media, bound=False)
        stand.plane.until(
            lambda: plugin.status(third).get("conditions"), what="the scheduler to look at a third pod with media extensions"
        )
        (condition,) = (one for one in plugin.status(third)["conditions"] if one["type"] == "PodScheduled")
        assert condition["reason"] == "Unschedulable" and f"Insufficient {media}" in condition["message"], condition


def _job(stand: Stand, name: str, playbook: str, cron: dict[str, t.Any], **variables: t.Any) -> str:
    """A run of a playbook in the CronJob's pod, with the account of this playbook; what it said."""
    spec = copy.deepcopy(cron["spec"]["jobTemplate"]["spec"])
    pod = spec["template"]["spec"]
    pod["serviceAccountName"] = f"tgp-gpu-{playbook}"
    command = pod["containers"][0]["command"]
    command[1], command[3] = f"tgp.gpu.{playbook}", json.dumps({**json.loads(command[3]), **variables})
    jobs = "/apis/batch/v1/namespaces/tgp-system/jobs"
    stand.plane.create(jobs, {"metadata": {"name": name}, "spec": spec})

    def ended() -> set[str]:
        conditions = stand.plane.get(f"{jobs}/{name}")["status"].get("conditions") or []
        return {one["type"] for one in conditions} & {"Complete", "Failed"}

    how = stand.plane.until(ended, timeout=180, what=f"job {name} to end")
    [made] = stand.plane.get("/api/v1/namespaces/tgp-system/pods", labelSelector=f"job-name={name}")["items"]
    said = stand.plane.http.get(f"/api/v1/namespaces/tgp-system/pods/{made['metadata']['name']}/log").text
    assert how == {"Complete"}, said
    return said


def _age(stand: Stand, name: str, minutes: int) -> None:
    """The record of a machine says that all of it was so much earlier: a cluster's clock cannot be moved."""
    path = f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}"

    def earlier(found: re.Match[str]) -> str:
        return to_text(from_text(found[0]) - timedelta(minutes=minutes))

    record = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", earlier, stand.plane.get(path)["data"]["claim.json"])
    stand.plane.patch(path, {"data": {"claim.json": record}}, "merge")


def test_the_image_runs_the_charts_cron_job_which_switches_an_idle_machine_off(
    stand: Stand, node: Node, helm: Helm, tmp_path: pathlib.Path
) -> None:
    """The image of image/Containerfile on a real kubelet, in a namespace that admits the restricted standard alone: its pod has no root and
    writes nowhere but in /tmp, reads its account's token, and calls the power service."""
    try:
        layers, started = container_file.layers(fetch=False)
    except CannotBuild as problem:
        pytest.skip(str(problem))
    name = "example.test/tgp-gpu:1"
    archive = image.of_layers([layer.read_bytes() for layer in layers], started, name)
    node.machine.run("ctr", "--namespace=k8s.io", "images", "import", "-", given=archive)
    address = urllib.parse.urlsplit(stand.plane.server)
    with OwnMachine(stand.plane, "box") as box:
        own = {"name": "box", "gpuCount": 1, "scaleUpEndpoint": f"{box.url}/on", "scaleDownEndpoint": f"{box.url}/off"}
        node_class = {"providers": [{"name": "webhook", "machines": [own]}], "networking": {"backend": "none"}}
        pool = {"nodeClassRef": {"name": "own"}, "gpuWait": "none", "disruption": {"consolidateAfter": "0s", "minAge": "0s"}}
        values = {
            "image": {"repository": name.partition(":")[0], "tag": "1", "pullPolicy": "Never"},
            "documents": {
                "inline": [
                    {"apiVersion": "tgp.io/v1", "kind": "GPUNodeClass", "metadata": {"name": "own"}, "spec": node_class},
                    {"apiVersion": "tgp.io/v1", "kind": "GPUNodePool", "metadata": {"name": "own"}, "spec": pool},
                ]
            },
            "env": {"KUBERNETES_SERVICE_HOST": str(address.hostname), "KUBERNETES_SERVICE_PORT": str(address.port)},
            "rbac": {"playbooks": ["provision"]},
            "nodeSelector": {"kubernetes.io/hostname": node.spec.name},
            "tolerations": [{"operator": "Exists"}],
            "jobs": {"suspend": True},
            "crds": {"install": False},
        }
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        tool = helm.at(stand.plane.kubeconfig)
        tool.deploy("install", "--values", str(file))
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        stand.plane.patch("/api/v1/namespaces/tgp-system", {"metadata": {"labels": labels}}, "merge")
        cron = stand.plane.get("/apis/batch/v1/namespaces/tgp-system/cronjobs/tgp-gpu-reap")
        _job(stand, "up", "provision", cron, tgp_pool="own", tgp_nodes=1)
        assert box.calls == ["/on"]
        _age(stand, "box", 20)
        said = _job(stand, "down", "reap", cron)
        assert box.calls == ["/on", "/off"], said
        [ran] = stand.plane.get("/api/v1/namespaces/tgp-system/pods", labelSelector="job-name=down")["items"]
        [container] = ran["status"]["containerStatuses"]
        print(f"{container['imageID']} of {container['image']} switched the idle machine off")
        assert container["imageID"].endswith(image.config_digest(archive))
        try:
            tool.hook("uninstall")
        except HelmFailed:
            [pod] = stand.plane.get("/api/v1/namespaces/tgp-system/pods", labelSelector="job-name=tgp-gpu-uninstall")["items"]
            raise AssertionError(
                stand.plane.http.get(f"/api/v1/namespaces/tgp-system/pods/{pod['metadata']['name']}/log").text
            ) from None


def test_the_node_lives_on_without_its_token(stand: Stand, node: Node) -> None:
    assert bootstrap_tokens.delete(stand.kube, node.token.id)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.spec.name}"
    before = stand.plane.until(lambda: stand.plane.find(lease), what="the kubelet's first lease")["spec"]["renewTime"]
    node.machine.run("systemctl", "daemon-reload")
    node.machine.run("systemctl", "restart", "kubelet")
    stand.plane.until(lambda: stand.plane.get(lease)["spec"]["renewTime"] > before, what="the restarted kubelet to report")
    assert objects.ready(stand.plane, node.spec.name) or _waits_for_us(stand, node)
    assert len(csr.requests(stand.kube, token_id=node.token.id)) == 1


def _waits_for_us(stand: Stand, node: Node) -> bool:
    found = nodes.get_node(stand.kube, node.spec.name)
    return found is not None and found.ready


def test_our_drain_evicts_the_pod_and_our_end_of_the_node_is_its_end(stand: Stand, node: Node) -> None:
    given = {name: option.get("default") for name, option in node_drain.SPEC["argument_spec"].items()}
    task = Task(
        params={**given, "kubeconfig": str(stand.plane.kubeconfig), "nodes": [node.spec.name], "timeout": 60, "force": True},
        warn=lambda _text: None,
    )
    done = execute(node_drain.SPEC, node_drain.run, task)
    (row,) = done["drains"]
    assert (row["drained"], row["evicted"]) == (True, ["default/job"]), row
    stand.plane.until(lambda: _phase(stand, "job") == "", what="the evicted pod to be gone")
    assert node.machine.run("ctr", "--namespace=k8s.io", "tasks", "list", "--quiet") == ""
    found = nodes.get_node(stand.kube, node.spec.name)
    assert found is not None
    node.machine.run("systemctl", "stop", "kubelet")  # the machine goes first: a living kubelet would come back
    assert nodes.delete_node(stand.kube, node.spec.name, uid=found.uid)
    assert objects.node(stand.plane, node.spec.name) is None


def test_a_wrong_token_stops_the_program_with_the_diagnosis_of_it(stand: Stand) -> None:
    name = "tgp-a1b2c3d4-ml-wrong"
    spec, text = user_data(stand, name, "abcdef.0123456789abcdef")
    with stand.machine() as machine:
        machine.install(spec.kubernetes_version)
        machine.boot(text, TGP_PAUSE="0.1")
        machine.until(lambda: machine.log and machine.log[-1].startswith("fail "), 120, "the program to give up")
        assert machine.step == "fail api" and "does not know the bootstrap token" in machine.log[-1]
        told = explained(machine, name, token_id="abcdef", token_found=False)
    assert (told.code, told.certain) == ("wrong_token", True)
    assert csr.requests(stand.kube, token_id="abcdef") == []


def test_a_forbidden_label_stops_the_kubelet_with_the_diagnosis_of_it(stand: Stand) -> None:
    """Our own check refuses such a label before anything is rented, so it is put into the finished files here."""
    name = "tgp-a1b2c3d4-ml-label"
    token = make_token(stand.kube, name, now=_now(), groups=bootstrap_tokens.OWN_GROUP)
    spec, text = user_data(stand, name, token.text)
    with stand.machine() as machine:
        machine.install(spec.kubernetes_version)
        machine.boot(text.replace("NODE_LABELS=", "NODE_LABELS=node-role.kubernetes.io/gpu=true,"), CSR_TIMEOUT="8")
        machine.until(lambda: machine.log and machine.log[-1].startswith("fail "), 120, "the program to give up")
        assert machine.step == "fail kubelet"
        told = explained(machine, name, token_id=token.id, token_found=True)
    assert told.code == "forbidden_label" and "node-role.kubernetes.io/gpu" in f"{told.cause} {told.evidence}"
    assert objects.node(stand.plane, name) is None


def test_a_machine_that_asks_for_another_name_is_denied_and_never_a_node(stand: Stand) -> None:
    """A host that reads the token out of its user data and wants to be somebody else."""
    name, other = "tgp-a1b2c3d4-ml-thief", "tgp-a1b2c3d4-ml-victim"
    token = make_token(stand.kube, name, now=_now(), groups=bootstrap_tokens.OWN_GROUP)
    spec, text = user_data(stand, name, token.text)
    with stand.machine() as machine:
        machine.install(spec.kubernetes_version)
        machine.boot(text.replace(f"NODE_NAME={name}", f"NODE_NAME={other}"))
        outcome = joined(stand, name, token)
        assert not outcome.ready and outcome.step == "csr" and "is denied" in outcome.message and other in outcome.message
        assert machine.text("/var/lib/kubelet/pki/kubelet-client-current.pem") == ""
    (request,) = csr.requests(stand.kube, token_id=token.id)
    assert (request.state, request.node) == ("denied", other)
    assert objects.node(stand.plane, other) is None and objects.node(stand.plane, name) is None


def test_what_a_killed_run_left_is_swept(stand: Stand) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, folder = f"{PREFIX}{gone.pid}-2", pathlib.Path(tempfile.gettempdir()) / f"{PREFIX}{gone.pid}-2-x"
    make_cgroup(left)
    folder.mkdir()
    with stand.machine() as machine:
        sweep()
        assert machine.folder.exists() and list(CGROUPS.glob(f"*/{machine.cgroup}"))
    assert not list(CGROUPS.glob(f"*/{left}")) and not folder.exists()


def test_nothing_is_left_of_a_machine(stand: Stand) -> None:
    with stand.machine() as machine:
        folder, cgroup, inner = machine.folder, machine.cgroup, machine.root
        assert list(CGROUPS.glob(f"*/{cgroup}")) and inner.exists()
    assert not list(CGROUPS.glob(f"*/{cgroup}")) and not folder.exists() and not inner.exists()
    assert str(folder) not in pathlib.Path("/proc/self/mounts").read_text()
