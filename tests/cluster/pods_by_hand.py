# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for the kubelet of the chart's pods: runs their command here, with their files, environment and account, and reports the end.

The image is this checkout. What a pod finds below /etc/tgp and /tmp is in a folder of its own, and paths are rewritten to it. A pod that
restarts always runs beside the others, is given changes of its ConfigMaps, and has its grace period when it is deleted.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import typing as t

import httpx

from .helm_cli import SPACE
from .plane import Plane

Object = dict[str, t.Any]
_PATIENCE = 60.0  # seconds; no grace period is longer here
_PODS = f"/api/v1/namespaces/{SPACE}/pods"


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """A pod that ended, by the name of its container."""

    name: str
    account: str
    status: int
    output: str


class Pod:
    """A pod at work. It may be killed, as with its host."""

    def __init__(self, command: list[str], folder: pathlib.Path, environment: dict[str, str], spec: Object) -> None:
        (self.container,) = spec["containers"]
        self.folder, self.spec = folder, spec
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def is_at_work(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """It and its host are gone at once: nobody tells it, and nothing of it goes on."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> Ran:
        """As its deletion does: SIGTERM to the main process, and SIGKILL when its grace period is over."""
        if self.is_at_work():
            self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(min(self.spec["terminationGracePeriodSeconds"], _PATIENCE))
        except subprocess.TimeoutExpired:
            self.kill()
            status = -signal.SIGKILL
        return Ran(self.container["name"], self.spec["serviceAccountName"], status, self.said)


class Kubelet:
    """``with Kubelet(plane, folder, environment) as kubelet``. ``environment``: what the sandbox says of clouds and mesh."""

    def __init__(self, plane: Plane, folder: pathlib.Path, environment: t.Mapping[str, str]) -> None:
        self._plane, self._folder, self._environment = plane, folder, environment
        self.ran: list[Ran] = []
        self.working: dict[str, Pod] = {}  # those that restart always, by uid
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="kubelet", daemon=True)

    def __enter__(self) -> t.Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()
        for pod in self.working.values():
            if pod.is_at_work():
                pod.kill()
        self.check()

    def check(self) -> None:
        """AssertionError when no pod is run any more, with the reason: whoever waits for one would wait in vain."""
        if self._error is not None:
            raise AssertionError(f"no pod is run any more: {self._error!r}") from self._error

    def last(self, name: str) -> Ran:
        self.check()
        found = [one for one in self.ran if one.name == name]
        assert found, f"no pod {name} has ended; others are {', '.join(one.name for one in self.ran) or 'none'}"
        return found[-1]

    def _work(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - told by check()
            self._error = error

    def _watch(self) -> None:
        begun = {pod["metadata"]["uid"] for pod in self._plane.get(_PODS)["items"]}  # of a release before
        while not self._stop.wait(0.2):
            there = {pod["metadata"]["uid"]: pod for pod in self._plane.get(_PODS)["items"]}
            for uid, pod in there.items():
                if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "tgp-gpu" and uid not in begun:
                    begun.add(uid)
                    self._run(pod, self._folder / uid)
            for uid, work in list(self.working.items()):
                if uid in there:
                    with contextlib.suppress(httpx.HTTPStatusError):  # a ConfigMap may go right before its pod does
                        self._mount(work.spec, work.folder)
                else:
                    self.ran.append(work.end())
                    del self.working[uid]  # after its end is told: who waits for no pod at work reads how each ended

    def _run(self, pod: Object, folder: pathlib.Path) -> None:
        spec = pod["spec"]
        (container,) = spec["containers"]
        command, environment = self._prepare(spec, folder)
        if spec["restartPolicy"] == "Always":
            self.working[pod["metadata"]["uid"]] = Pod(command, folder, environment, spec)
            return
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.ran.append(Ran(container["name"], spec["serviceAccountName"], done.returncode, done.stdout))
        ended = {"terminated": {"exitCode": done.returncode}}
        status = {
            "phase": "Failed" if done.returncode else "Succeeded",
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": ended,
                }
            ],
        }
        try:
            self._plane.patch(f"{_PODS}/{pod['metadata']['name']}/status", {"status": status}, "merge")
        except httpx.HTTPStatusError as error:
            if error.response.status_code != 404:  # it was deleted while it ran, as with its release
                raise

    def _prepare(self, spec: Object, folder: pathlib.Path) -> tuple[list[str], dict[str, str]]:
        """The command and the environment of its container."""
        (container,) = spec["containers"]
        places = self._mount(spec, folder)
        mounted = re.compile("|".join(rf"(?<![\w/]){re.escape(path)}(?![\w-])" for path in places))

        def here(text: str) -> str:
            return mounted.sub(lambda found: str(places[found[0]]), text)

        account = spec["serviceAccountName"]
        token = self._plane.create(
            f"/api/v1/namespaces/{SPACE}/serviceaccounts/{account}/token", {"spec": {"expirationSeconds": 3600}}
        )
        kubeconfig = self._plane.write_kubeconfig(account, {"token": token["status"]["token"]}, folder)
        own = {one["name"]: here(one["value"]) for one in container["env"]}
        program, *words = [here(word) for word in container["command"]]
        environment = {**self._environment, **own, "KUBECONFIG": str(kubeconfig), "PATH": os.environ["PATH"]}
        return [str(pathlib.Path(sys.executable).parent / program), *words], environment

    def _mount(self, spec: Object, folder: pathlib.Path) -> dict[str, pathlib.Path]:
        """The volumes as they are now; where the container finds them, by its own paths."""
        (container,) = spec["containers"]
        volumes = {one["name"]: one for one in spec["volumes"]}
        for one in container["volumeMounts"]:
            self._fill(volumes.get(one["name"], {}), folder / one["name"])
        return {one["mountPath"]: folder / one["name"] for one in container["volumeMounts"]}

    def _fill(self, volume: Object, place: pathlib.Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            found = self._plane.get(f"/api/v1/namespaces/{SPACE}/configmaps/{volume['configMap']['name']}")
            for name, text in (found.get("data") or {}).items():
                if not (place / name).exists() or (place / name).read_text() != text:
                    (place / f".{name}").write_text(text)
                    (place / f".{name}").rename(place / name)  # a kubelet changes a file at once, too
        if "secret" in volume:
            found = self._plane.get(f"/api/v1/namespaces/{SPACE}/secrets/{volume['secret']['secretName']}")
            for name, text in found["data"].items():
                (place / name).write_bytes(base64.b64decode(text))
