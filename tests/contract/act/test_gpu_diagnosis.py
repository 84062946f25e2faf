# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet_diagnose: all is well, and each of the faults of the sandbox with its remedy (S4-10 to S4-12, S4-19 to S4-22)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import queue
import shutil
import tarfile
import threading
import typing as t
from pathlib import Path

import asyncssh
import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import execute
from ansible_collections.tgp.gpu.plugins.module_utils.operations import gpu_test

from sandbox import device_plugin
from sandbox.gpu_stack import FAULTS, NAMESPACE, NODE, GpuStack
from sandbox.talos_api import TalosApi, version_text

from .rig import Rig

#: fault -> (subject, check, code, words of its remedy)
TOLD: dict[str, tuple[str, str, str, str]] = {
    "module not loaded": ("node gpu-1", "driver", "modules_not_loaded", "machine.kernel.modules"),
    "cdi-gen failed": ("node gpu-1", "CDI", "cdi_failed", "log of ext-nvidia-cdi-gen"),
    "wrong module for the GPU": ("node gpu-1", "extensions", "wrong_driver", "Make an image"),
    "driver and library mismatch": ("node gpu-1", "driver", "version_mismatch", "one track"),
    "mixed extension tracks": ("node gpu-1", "extensions", "mixed_tracks", "of one track"),
    "toolkit extension missing": ("node gpu-1", "extensions", "no_toolkit", "siderolabs/nvidia-container-toolkit-lts"),
    "RuntimeClass missing": ("cluster", "RuntimeClass", "no_runtime_class", "Create it"),
    "plugin does not tolerate a taint": ("node gpu-1", "device plugin", "plugin_not_scheduled", "team=research:NoSchedule"),
    "plugin without NVML": ("node gpu-1", "device plugin", "no_nvml", "runtimeClassName: nvidia"),
    "unhealthy GPU": ("node gpu-1", "GPUs", "gpus_unhealthy", "XID"),
    "slices not in effect": ("node gpu-1", "GPUs", "slices_missing", "restart its pod"),
    "broken plugin configuration": ("cluster", "plugin configuration", "config_invalid", "Correct it"),
    "power limit forbidden": ("node gpu-1", "power limit", "power_forbidden", "opt-in label"),
    "CDI hook at a wrong path": ("pod default/job", "waits", "hook_path", "NVIDIA_CDI_HOOK_PATH"),
    "two slices for one pod": ("pod default/job", "waits", "slices_per_pod", "nvidia.com/gpu: 1"),
    "taint not tolerated": ("pod default/job", "waits", "taint_not_tolerated", "tgp.io/ephemeral"),
    "selector matches no node": ("pod default/job", "waits", "not_selected", "nodeSelector"),
    "no free GPU": ("pod default/job", "waits", "no_free_gpu", "time-slicing"),
    "image cannot be pulled": ("pod default/job", "waits", "image_pull", "imagePullSecret"),
    "resource has another name": ("pod default/job", "waits", "other_resource", "Ask for nvidia.com/gpu.shared"),
}

Json = dict[str, t.Any]


@dataclasses.dataclass
class Stand:
    """A rig with two GPU nodes, and what fleet_diagnose says of them."""

    rig: Rig
    stack: GpuStack
    config: str

    def checks(self, **options: t.Any) -> list[dict[str, str]]:
        """All checks, whether the module failed or not."""
        try:
            return t.cast("list[dict[str, str]]", self.rig.run("diagnose", **{"talosconfig": self.config, **options})["checks"])
        except InvalidInput as error:
            return t.cast("list[dict[str, str]]", error.result["checks"])  # type: ignore[attr-defined]

    def system_log(self, text: str) -> None:
        self.stack.system().logs["ext-nvidia-cdi-gen"] = text

    def states(self, **options: t.Any) -> set[str]:
        return {check["state"] for check in self.checks(**options)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[tuple[Rig, TalosApi]]:
    """One world for all tests here: to build one takes a second."""
    folder = tmp_path_factory.mktemp("gpus")
    with pytest.MonkeyPatch.context() as patch, TalosApi() as talos:
        patch.setenv("TGP_RUNTIME_DIR", str(folder / "pace"))
        rig = Rig(folder, device_plugin=False)
        yield rig, talos
        rig.close()


@pytest.fixture
def stand(place: tuple[Rig, TalosApi]) -> t.Iterator[Stand]:
    rig, talos = place
    stack = GpuStack(rig.api, talos).healthy()
    rig.lines.clear()
    path = rig.folder / "talosconfig"
    path.write_text(talos.talosconfig())
    yield Stand(rig, stack, str(path))
    stack.clear()


def test_S4_11_all_is_well_and_nothing_is_written(stand: Stand) -> None:
    before = list(stand.rig.world.writes)
    result = stand.rig.run("diagnose", talosconfig=stand.config)
    assert {check["state"] for check in result["checks"]} == {"ok"}, result["checks"]
    assert result["changed"] is False and stand.rig.world.writes == before
    checked = {check["check"] for check in result["checks"] if check["subject"] == f"node {NODE}"}
    assert checked == {"node", "extensions", "driver", "services", "CDI", "device plugin", "GPUs", "power limit"}
    table = "\n".join(stand.rig.lines)
    assert "8 allocatable = 2 GPUs × 4 slices" in table and "580.126.20, 4 modules loaded" in table


class Kubelets:
    """While the block runs, test pods are run as kubelets would; ``seen`` counts them. Pods of other tests are left alone."""

    def __init__(self, stack: GpuStack, broken: str = "") -> None:
        self._stack, self._broken = stack, broken
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.seen = 0

    def _work(self) -> None:
        while not self._end.wait(0.005):
            self.seen += self._stack.run_test_pods(broken=self._broken)

    def __enter__(self) -> Kubelets:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        self._thread.join()


def labelled(stack: GpuStack) -> list[str]:
    listed = stack.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=tgp.io/gpu-test")["items"]
    return [pod["metadata"]["name"] for pod in listed]


@pytest.mark.parametrize(
    ("broken", "state", "words"),
    [("", "ok", "4 pods shared GPUs on gpu-2 and passed"), ("CDI", "NO", "2 of 4 failed. "), ("wrapper", "NO", "2 of 4 failed. ")],
)
def test_S4_13_four_pods_share_a_gpu_and_are_gone_afterwards(stand: Stand, broken: str, state: str, words: str) -> None:
    with Kubelets(stand.stack, broken) as kubelets:
        checks = stand.checks(gpu_test=True)
    [found] = [one for one in checks if one["check"] == "GPU test"]
    assert (found["state"], kubelets.seen) == (state, 4) and words in found["seen"], found
    if broken:
        assert f"({broken})" in found["seen"] and "no CUDA-capable device" in found["seen"] and found["remedy"] != ""
    assert labelled(stand.stack) == []


def test_S4_13_test_pods_that_never_start_and_those_of_a_killed_run_go(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet runs nothing here. A run that is killed leaves its pods, and the next one removes them once their time is over."""
    removed = gpu_test._removed
    monkeypatch.setattr(gpu_test, "_removed", lambda *_what: None)
    stand.checks(gpu_test=True, gpu_test_timeout=30)
    assert len(labelled(stand.stack)) == 4
    monkeypatch.setattr(gpu_test, "_removed", removed)
    checks = stand.checks(gpu_test=True, gpu_test_timeout=30)
    [found] = [one for one in checks if one["check"] == "GPU test"]
    assert found["state"] == "NO" and "it did not end in time" in found["seen"]
    assert labelled(stand.stack) == []


def test_S4_13_check_mode_makes_no_pod(stand: Stand) -> None:
    before = list(stand.rig.world.writes)
    result = stand.rig.run("diagnose", check=True, talosconfig=stand.config, gpu_test=True)
    assert stand.rig.world.writes == before and "GPU test" not in {one["check"] for one in result["checks"]}


def test_S4_23_a_deep_look_lists_objects_and_sockets_and_runs_nvidia_smi(stand: Stand) -> None:
    with Kubelets(stand.stack) as kubelets:
        checks = stand.checks(gpu_test=True, deep=True)
    found = {(one["subject"], one["check"]): one for one in checks}
    assert kubelets.seen == 5 and found["cluster", "GPU test"]["state"] == "ok"
    assert f"daemonsets/{NAMESPACE}/nvidia-device-plugin" in found["cluster", "objects"]["seen"]
    assert "nvidia-gpu.sock" in found[f"node {NODE}", "plugin socket"]["seen"]
    stand.stack.system().folders.clear()
    [socket] = [one for one in stand.checks(deep=True) if one["check"] == "plugin socket" and one["subject"] == f"node {NODE}"]
    assert (socket["state"], socket["code"]) == ("NO", "no_socket")


def test_a_bundle_holds_everything_and_no_secret(stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called as Ansible calls it, which makes the values of its options known. The id of an OAuth client is none."""
    monkeypatch.setattr(stand.rig, "call", lambda code, task: execute(code.SPEC, code.run, task))
    secrets = [value for name, value in stand.rig.world.secrets.items() if name != "TS_OAUTH_CLIENT_ID"]
    secrets += [stand.rig.api.admin_token, "abcdef.0123456789abcdef"]
    stand.stack.log("\n".join(f"the token is {secret}" for secret in secrets))
    stand.system_log(f"key {secrets[0]}")
    stand.stack.request("PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {"note": "swordfish-7"}}})
    path = tmp_path / "gpus.tar.gz"
    stand.checks(bundle=str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        texts = {one.name: archive.extractfile(one).read().decode() for one in archive.getmembers()}  # type: ignore[union-attr]
    config = yaml.safe_load(Path(stand.config).read_text())["contexts"]["sandbox"]
    whole = "\n".join(texts.values())
    for secret in (*secrets, config["key"], base64.b64decode(config["key"]).decode(), "swordfish-7"):
        assert secret not in whole
    assert json.loads(texts["tgp-diagnose/facts.json"])["nodes"][0]["node"]["name"] == NODE
    assert {"tgp-diagnose/table.txt", "tgp-diagnose/checks.json", f"tgp-diagnose/nodes/{NODE}/ext-nvidia-cdi-gen.log"} <= set(texts)
    assert "the token is ********" in texts[f"tgp-diagnose/pods/{NAMESPACE}/nvidia-device-plugin-{NODE}.log"]


def test_what_cannot_be_read_is_unknown_and_stops_nothing(stand: Stand) -> None:
    """A reader of Talos may not read files; without a talosconfig, or with an endpoint that is gone, the rest is checked all the same."""
    path = Path(stand.config)
    path.write_text(stand.stack.talos.talosconfig(role="os:reader"))
    driver = [one for one in stand.checks() if one["check"] == "driver"]
    assert {one["state"] for one in driver} == {"ok"} and "not authorized" in driver[0]["seen"]
    for config, why in (
        (None, "no talosconfig is given"),
        (str(path.parent / "none"), "No such file"),
        (stand.config, "cannot be reached"),
    ):
        path.write_text(stand.stack.talos.talosconfig(endpoints=["127.0.0.1:9"]))
        checks = stand.checks(talosconfig=config)
        assert {one["state"] for one in checks} == {"ok", "unknown"}
        assert why in next(one["seen"] for one in checks if one["check"] == "driver"), why


@pytest.mark.parametrize(
    ("options", "subjects"),
    [
        ({"node": NODE}, {"cluster", f"node {NODE}"}),
        ({"pool": "training"}, {"cluster", f"node {NODE}", "node gpu-2", "pod default/job"}),
        ({"pod": "default/job"}, {"cluster", f"node {NODE}", "node gpu-2", "pod default/job"}),
    ],
)
def test_one_subject_is_looked_at(stand: Stand, options: dict[str, str], subjects: set[str]) -> None:
    stand.stack.workload(tolerations=[])
    assert {one["subject"] for one in stand.checks(**options)} == subjects


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"node": "gpu-9"}, "node: there is no Node gpu-9"),
        ({"pool": "trainnig"}, "no node is of a pool trainnig"),
        ({"pod": "job"}, "is not namespace/name"),
        ({"pod": "default/none"}, "there is no pod default/none"),
        ({"node": NODE, "pod": "default/job"}, "node and pod are given together"),
    ],
)
def test_a_subject_that_does_not_exist_is_refused(stand: Stand, options: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        stand.rig.run("diagnose", talosconfig=stand.config, **options)


@pytest.mark.parametrize("fault", FAULTS)
def test_S4_19_each_fault_is_told_with_its_remedy(stand: Stand, fault: str) -> None:
    FAULTS[fault](stand.stack)
    subject, check, code, remedy = TOLD[fault]
    checks = stand.checks()
    found = [one for one in checks if (one["subject"], one["check"]) == (subject, check)]
    assert [(one["state"], one["code"]) for one in found] == [("NO", code)], checks
    assert remedy in found[0]["remedy"]
    assert {one["state"] for one in checks if one["subject"] == "node gpu-2"} == {"ok"}, "the other node is well"
    assert any(f"→ {found[0]['remedy']}" in line for line in stand.rig.lines)


# ---- nodes that do not run Talos


@contextlib.contextmanager
def ssh_server(folder: Path, key: asyncssh.SSHKey, host_key: asyncssh.SSHKey) -> t.Iterator[tuple[int, list[str]]]:
    """A machine that lets ``key`` in as ubuntu, and runs what it is sent. Its /proc, /etc and programs are in ``folder``. Port, commands."""
    ran: list[str] = []
    started: queue.SimpleQueue[int] = queue.SimpleQueue()
    authorized = asyncssh.import_authorized_keys(key.export_public_key().decode())
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}

    class Server(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            return True

        def public_key_auth_supported(self) -> bool:
            return True

        def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
            return username == "ubuntu" and authorized.validate(key, "", "", None) is not None

    async def run(process: asyncssh.SSHServerProcess[str]) -> None:
        script = (await process.stdin.read()).replace("/proc/", f"{folder}/proc/").replace("/etc/", f"{folder}/etc/")
        ran.append(process.command or "")
        shell = await asyncio.create_subprocess_exec(
            "sh", "-c", process.command or "", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment
        )
        said, _none = await shell.communicate(script.encode())
        process.stdout.write(said.decode())
        process.exit(shell.returncode or 0)

    async def serve() -> None:
        server = await asyncssh.create_server(Server, "127.0.0.1", 0, server_host_keys=[host_key], process_factory=run)
        started.put(server.get_port())
        try:
            await end.wait()
        finally:
            server.close()

    loop, end = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        yield started.get(timeout=60), ran
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def furnish(folder: Path, version: str) -> None:
    """A machine whose second GPU the driver does not see."""
    files = {
        "proc/modules": "nvidia_uvm 1 0 - Live\nnvidia 2 1 nvidia_uvm, Live\n",
        "proc/driver/nvidia/version": version,
        "etc/containerd/config.toml": 'version = 3\n[plugins."io.containerd.cri.v1.runtime"] # nvidia-container-runtime\n',
        "bin/nvidia-smi": "#!/bin/sh\necho 'GPU 0: NVIDIA A10 (UUID: GPU-1)'\n",
        "bin/nvidia-ctk": "#!/bin/sh\necho 'NVIDIA Container Toolkit CLI version 1.19.1'\n",
        "bin/journalctl": "#!/bin/sh\necho 'kernel: NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.'\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def test_S4_19_an_ubuntu_node_is_asked_by_ssh(stand: Stand, tmp_path: Path) -> None:
    """The real client of OpenSSH. A host key that nobody accepted, or a user that is refused, leaves the node unknown."""
    if shutil.which("ssh") is None:
        pytest.skip("needs the program ssh")
    key, host_key = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    furnish(tmp_path, version_text("580.126.20"))
    (tmp_path / "key").touch(mode=0o600)
    key.write_private_key(str(tmp_path / "key"))
    known, config = tmp_path / "known_hosts", tmp_path / "ssh.config"
    known.touch()
    config.write_text(f"Host *\n  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n")
    addresses = [{"type": "Hostname", "address": NODE}, {"type": "InternalIP", "address": "127.0.0.1"}]
    system = {"addresses": addresses, "nodeInfo": {"osImage": "Ubuntu 24.04.4 LTS", "kubeletVersion": "v1.36.3"}}
    stand.stack.request("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": system})

    with ssh_server(tmp_path, key, host_key) as (port, ran):

        def look(user: str = "ubuntu") -> dict[str, dict[str, str]]:
            options = {"ssh_user": user, "ssh_private_key": str(tmp_path / "key"), "ssh_config": str(config), "ssh_port": port}
            return {one["check"]: one for one in stand.checks(node=NODE, **options) if one["subject"] == f"node {NODE}"}

        unknown = look()
        assert unknown["driver"]["state"] == "unknown" and "its host key is not known" in unknown["driver"]["seen"], unknown
        known.write_text(f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}")
        assert "it refuses this user or key" in look("root")["driver"]["seen"]
        assert ran == []
        found = look()
    look_again = look()  # nobody listens any more
    assert ran == ["sh -s"]
    told = {check: (row["state"], row["code"]) for check, row in found.items()}
    assert told == {
        "node": ("ok", ""),
        "driver": ("ok", ""),
        "nvidia-smi": ("NO", "gpus_missing"),
        "container toolkit": ("ok", ""),
        "kernel log": ("NO", "xid"),
        "device plugin": ("ok", ""),
        "GPUs": ("ok", ""),
        "power limit": ("ok", ""),
    }
    assert "580.126.20" in found["driver"]["seen"] and "1 of 2 GPUs" in found["nvidia-smi"]["seen"]
    assert "Connection refused" in look_again["driver"]["seen"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssh_private_key": "id"}, "ssh_private_key is given without ssh_user"),
        ({"ssh_user": "-oProxyCommand=x"}, "is not the name of a user"),
        ({"ssh_user": "ubuntu", "ssh_port": 70000}, "it is 1 to 65535"),
        ({"ssh_user": "ubuntu", "ssh_config": "/none"}, "/none cannot be read"),
    ],
)
def test_wrong_options_of_ssh_are_refused(stand: Stand, options: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        stand.rig.run("diagnose", talosconfig=stand.config, **options)


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [({"kind": "plugin_crash"}, "CrashLoopBackOff"), ({"kind": "plugin_late", "seconds": 3600}, "not ready")],
)
def test_a_plugin_of_a_rented_machine_that_crashes_or_is_late_is_the_cause(
    build: t.Callable[..., Rig], behaviour: Json, words: str
) -> None:
    """As the sandbox's kubelets run it. The node joins, because its pool does not wait for GPUs."""
    rig = build(device_plugin=False)
    manifest = device_plugin.manifest()
    manifest["metadata"]["name"] = "nvidia-device-plugin"  # a sandbox starts no pods of the one that it begins with
    rig.kube("POST", "/apis/apps/v1/namespaces/kube-system/daemonsets", manifest)
    rig.training["gpuWait"] = "none"
    rig.behave(**behaviour)
    (machine,) = rig.provision()["machines"]
    if behaviour["kind"] == "plugin_crash":
        pods = "/api/v1/namespaces/kube-system/pods"
        rig.until(lambda: words in json.dumps(rig.kube("GET", pods)), "the plugin has crashed and waits for its next try")
    with pytest.raises(InvalidInput) as caught:
        rig.run("diagnose")
    found = {one["check"]: one for one in caught.value.result["checks"] if one["subject"] == f"node {machine['name']}"}  # type: ignore[attr-defined]
    assert (found["device plugin"]["code"], found["GPUs"]["code"]) == ("plugin_not_ready", "no_gpus_shown"), found
    assert words in found["device plugin"]["seen"]
    if behaviour["kind"] == "plugin_late":
        rig.advance(3600)
        rig.until(lambda: rig.nodes()[machine["name"]]["status"]["allocatable"].get("nvidia.com/gpu"), "shows its GPUs")
        assert {one["state"] for one in rig.run("diagnose")["checks"]} <= {"ok", "warn", "unknown"}
