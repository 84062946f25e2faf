# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox as a person starts it: a command, a file, real sockets, and nothing left afterwards."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import typing as t
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from sandbox.__main__ import main
from sandbox.box import Box
from sandbox.scenario import parse
from sandbox.server import Served
from sandbox.talos_secrets import TalosSecrets

from .conftest import SMALL, Hand

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAMES = {
    "LAMBDA_API_URL", "LAMBDA_API_KEY", "TAILSCALE_API_URL", "TS_OAUTH_CLIENT_ID", "TS_OAUTH_CLIENT_SECRET", "IMAGE_FACTORY_URL",
    "PAPERSPACE_API_URL", "PAPERSPACE_API_KEY", "RUNPOD_API_URL", "RUNPOD_API_KEY", "VAST_URL", "VAST_API_KEY",
    "TGP_MESH_PROXY",
    "WEBHOOK_URL", "KUBECONFIG", "SANDBOX_URL", "TGP_CLOCK_FILE", "TGP_STATE_DIR", "TGP_TALOS_SECRETS", "TGP_CONTROL_PLANE_ENDPOINT",
}  # fmt: skip


def closed(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((str(parts.hostname), int(parts.port or 0))) != 0


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> t.Iterator[subprocess.Popen[str]]:
    """``process``, which ends also when an assertion fails: a Popen that is left waits for the end of its program."""
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def test_the_command_serves_until_it_is_told_to_end(tmp_path: pathlib.Path) -> None:
    env_file = tmp_path / "deep" / "env file"
    command = [sys.executable, "-m", "sandbox", "up", "--env-file", str(env_file), "--speed", "60", "--scenario", "seed-s0"]
    with ended(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)) as process:
        end = time.monotonic() + 60
        while not env_file.exists():
            assert process.poll() is None and time.monotonic() < end, process.communicate()
            time.sleep(0.02)
        assert os.stat(env_file).st_mode & 0o077 == 0
        shell = subprocess.run(
            ["sh", "-c", 'set -eu; . "$0"; env', str(env_file)], capture_output=True, text=True, check=True, env={}
        )
        assert shell.stderr == ""
        shell = subprocess.run(["sh", "-ac", '. "$0"; env', str(env_file)], capture_output=True, text=True, check=True, env={})
        found = dict(line.partition("=")[::2] for line in shell.stdout.splitlines())
        assert set(found) >= NAMES
        world = httpx.get(f"{found['SANDBOX_URL']}/world").json()
        assert world["speed"] == 60 and world["scenario"] == "seed-s0" and world["totals"]["instances"] == 0
        assert len(found["LAMBDA_API_KEY"]) >= 24 and len(found["TS_OAUTH_CLIENT_SECRET"]) >= 24
        process.send_signal(signal.SIGTERM)
        output, noise = process.communicate(timeout=60)
    assert process.returncode == 0 and noise == ""
    assert "kubernetes" in output and found["SANDBOX_URL"] in output
    assert not env_file.exists() and not os.path.exists(found["KUBECONFIG"])
    assert all(closed(found[name]) for name in NAMES if name.endswith(("_URL", "_ENDPOINT")))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--scenario", "/nowhere.yaml"], "neither a file nor one of"),
        (["--kubeconfig", "/nowhere"], "no usable kubeconfig"),
    ],
)
def test_nonsense_is_refused_before_anything_is_served(options: list[str], says: str, tmp_path: t.Any, capsys: t.Any) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert main(["up", "--env-file", str(tmp_path / "env"), *options]) == 2
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert says in capsys.readouterr().err
    assert not (tmp_path / "env").exists()


KUBECONFIG = {
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9", "certificate-authority-data": ""}}],
    "users": [{"name": "u", "user": {"token": "a-token-of-nobody-at-all"}}],
}
CLUSTER, USER = KUBECONFIG["clusters"][0]["cluster"], KUBECONFIG["users"][0]["user"]  # type: ignore[index]
AUTHORITY = TalosSecrets("").bundle()["certs"]["os"]["crt"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (["a"], "is no usable kubeconfig"),
        ({**KUBECONFIG, "contexts": ["a"]}, "contexts: a"),
        ({**KUBECONFIG, "users": [{"name": "u", "user": None}]}, "neither a token nor"),
        ({**KUBECONFIG, "users": [{"name": "u", "user": "u"}]}, "is no usable kubeconfig"),
        (
            {**KUBECONFIG, "clusters": [{"name": "c", "cluster": {**CLUSTER, "certificate-authority-data": 5}}]},
            "not text in base64",
        ),
        (
            {**KUBECONFIG, "clusters": [{"name": "c", "cluster": {**CLUSTER, "certificate-authority-data": "aGVsbG8="}}]},
            "cannot be used",
        ),
        (
            {**KUBECONFIG, "clusters": [{"name": "c", "cluster": {**CLUSTER, "certificate-authority-data": AUTHORITY}}]},
            "does not answer",
        ),
    ],
)
def test_a_cluster_that_no_machine_could_join_is_refused(content: t.Any, says: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match=says):
        Served(parse(SMALL), kubeconfig=str(file), state_dir=str(tmp_path / "state"))
    assert not (tmp_path / "state").exists()


def test_a_folder_is_no_environment_file(tmp_path: pathlib.Path) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(OSError, match="is a folder"):
        Served(parse(SMALL), env_file=str(tmp_path))
    assert set(threading.enumerate()) <= threads and not list(tmp_path.iterdir())


def test_what_cannot_be_written_ends_all_that_was_begun(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, env_file, moved = set(threading.enumerate()), tmp_path / "env", os.replace

    def full(source: t.Any, target: t.Any) -> None:
        if str(target) == str(env_file):
            raise OSError(28, "No space left on device")
        moved(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        Served(parse(SMALL), env_file=str(env_file), state_dir=str(tmp_path / "state"))
    assert set(threading.enumerate()) <= threads
    assert [one.name for one in tmp_path.iterdir()] == ["state"]  # and no half of the file with credentials


def test_the_environment_of_one_that_was_killed_is_gone_until_there_is_a_new_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_file, start, seen = tmp_path / "env", Box.start, []
    env_file.write_text("SANDBOX_URL=http://127.0.0.1:9\n")

    def begins(box: Box) -> Box:
        seen.append(env_file.exists())
        return start(box)

    monkeypatch.setattr(Box, "start", begins)
    with pytest.raises(ValueError, match="no usable kubeconfig"):
        Served(parse(SMALL), env_file=str(env_file), kubeconfig="/nowhere")
    assert env_file.exists()  # nothing was begun
    served = Served(parse(SMALL), env_file=str(env_file))
    served.stop()
    assert seen == [False] and not env_file.exists()


def test_the_end_of_a_sandbox_leaves_the_environment_of_the_next(tmp_path: pathlib.Path) -> None:
    env_file = tmp_path / "env"
    first = Served(parse(SMALL), env_file=str(env_file))
    second = Served(parse(SMALL), env_file=str(env_file))
    try:
        first.stop()
        assert second.environment["SANDBOX_URL"] in env_file.read_text()
    finally:
        second.stop()
    assert not env_file.exists()


@pytest.mark.parametrize("speed", ["0", "-1", "fast", "nan"])
def test_a_speed_that_is_none(speed: str, tmp_path: t.Any, capsys: t.Any) -> None:
    with pytest.raises(SystemExit):
        main(["up", "--env-file", str(tmp_path / "env"), "--speed", speed])
    told = "argument --speed: 'fast' is no number" if speed == "fast" else "argument --speed: should be above 0 and at most 10000"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("behind", ["-1", "long", "nan", "1e9"])
def test_a_past_that_is_none(behind: str, tmp_path: t.Any) -> None:
    with pytest.raises(SystemExit):
        main(["up", "--env-file", str(tmp_path / "env"), "--behind", behind])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_demo_that_is_ended_takes_its_sandbox_along(number: int, code: int, tmp_path: pathlib.Path) -> None:
    command, environment = [sys.executable, "-m", "sandbox.demo"], {**os.environ, "TMPDIR": str(tmp_path)}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and its children do
    try:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with ended(process):
        assert process.stdout is not None and process.stderr is not None
        while not (line := process.stdout.readline()).startswith("$ ansible-playbook"):
            assert line, process.stderr.read()  # its output has not ended
        (env_file,) = tmp_path.glob("tgp-demo-*/env")
        url = next(line for line in env_file.read_text().splitlines() if line.startswith("SANDBOX_URL")).partition("=")[2]
        assert not closed(url)
        process.send_signal(number)
        noise = process.communicate(timeout=60)[1]
    assert process.returncode == code and "Traceback" not in noise
    assert closed(url) and not list(tmp_path.glob("tgp-demo-*"))


_WAITS = """
import sys
sys.path.insert(0, sys.argv[1])
from sandbox.running import EndSignals
asked_to_end = EndSignals()
print("ready", flush=True)
asked_to_end.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_that_follow_one_another_at_once_end_it(number: int) -> None:
    """A shell's ``kill`` and the one of its EXIT trap arrive together, at any instruction of the wait."""
    for _attempt in range(8):
        with ended(subprocess.Popen([sys.executable, "-c", _WAITS, str(ROOT)], stdout=subprocess.PIPE, text=True)) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            for _signal in range(200):
                process.send_signal(number)
            assert process.wait(60) == 0


def test_a_world_that_begins_in_the_past(tmp_path: pathlib.Path) -> None:
    began = time.time()
    served = Served(parse(SMALL), behind=720, state_dir=str(tmp_path / "state"))
    try:
        moment = served.box.world.clock.seconds()
        assert began - 720.1 <= moment and moment + 719.9 <= time.time()
    finally:
        served.stop()


def test_machines_join_over_tls_and_everything_ends(tmp_path: pathlib.Path) -> None:
    threads = set(threading.enumerate())
    served = Served(parse(SMALL), speed=600, state_dir=str(tmp_path / "state"), env_file=str(tmp_path / "env"))
    try:
        hand = Hand(served.box)
        endpoint = served.environment["TGP_CONTROL_PLANE_ENDPOINT"]
        good = hand.rent("tgp-a-1", hand.payload("tgp-a-1", endpoint=endpoint))
        lost = hand.rent("tgp-a-2", hand.payload("tgp-a-2", endpoint="https://127.0.0.1:9"))
        bundle = yaml.safe_load(pathlib.Path(served.environment["TGP_TALOS_SECRETS"]).read_text())
        bundle["certs"]["k8s"]["crt"] = TalosSecrets("").bundle()["certs"]["os"]["crt"]  # a CA, and not this cluster's
        from ansible_collections.tgp.gpu.plugins.module_utils.talos.secrets import read

        wrong = hand.rent("tgp-a-3", hand.payload("tgp-a-3", endpoint=endpoint, secrets=read(bundle)))
        hand.story(good, "done")
        hand.until(lambda: any("refused" in text for _time, step, text in lost.steps if step == "csr"))
        hand.until(lambda: any("certificate" in text.lower() for _time, step, text in wrong.steps if step == "csr"))
        assert {node["metadata"]["name"] for node in hand.box.nodes()} == {"tgp-a-1"}
    finally:
        served.stop()
    assert set(threading.enumerate()) <= threads
    assert not (tmp_path / "env").exists()
