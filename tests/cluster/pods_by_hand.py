# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for the kubelet of the chart's pods: runs their command here, with their files, environment and account, and reports the end.

The image is this checkout. What a pod finds below /etc/tgp and /tmp is in a folder of its own, and paths are rewritten to it.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import threading
import typing as t

from .helm_cli import SPACE
from .plane import Plane

Object = dict[str, t.Any]
_PODS = f"/api/v1/namespaces/{SPACE}/pods"


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """A pod that ended, by the name of its container."""

    name: str
    account: str
    status: int
    output: str


class Kubelet:
    """``with Kubelet(plane, folder, environment) as kubelet``. ``environment``: what the sandbox says of clouds and mesh."""

    def __init__(self, plane: Plane, folder: pathlib.Path, environment: t.Mapping[str, str]) -> None:
        self._plane, self._folder, self._environment = plane, folder, environment
        self.ran: list[Ran] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kubelet", daemon=True)

    def __enter__(self) -> t.Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def last(self, name: str) -> Ran:
        return next(one for one in reversed(self.ran) if one.name == name)

    def _watch(self) -> None:
        begun: set[str] = set()
        while not self._stop.wait(0.2):
            for pod in self._plane.get(_PODS)["items"]:
                uid = pod["metadata"]["uid"]
                if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "tgp-gpu" and uid not in begun:
                    begun.add(uid)
                    self._run(pod, self._folder / uid)

    def _run(self, pod: Object, folder: pathlib.Path) -> None:
        spec = pod["spec"]
        (container,) = spec["containers"]
        volumes = {one["name"]: one for one in spec["volumes"]}
        places = {one["mountPath"]: folder / one["name"] for one in container["volumeMounts"]}
        for one in container["volumeMounts"]:
            self._fill(volumes.get(one["name"], {}), folder / one["name"])

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
        done = subprocess.run(
            [str(pathlib.Path(sys.executable).parent / program), *words],
            cwd=folder,
            env={**self._environment, **own, "KUBECONFIG": str(kubeconfig), "PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.ran.append(Ran(container["name"], account, done.returncode, done.stdout))
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
        self._plane.patch(f"{_PODS}/{pod['metadata']['name']}/status", {"status": status}, "merge")

    def _fill(self, volume: Object, place: pathlib.Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            found = self._plane.get(f"/api/v1/namespaces/{SPACE}/configmaps/{volume['configMap']['name']}")
            for name, text in (found.get("data") or {}).items():
                (place / name).write_text(text)
        if "secret" in volume:
            found = self._plane.get(f"/api/v1/namespaces/{SPACE}/secrets/{volume['secret']['secretName']}")
            for name, text in found["data"].items():
                (place / name).write_bytes(base64.b64decode(text))
