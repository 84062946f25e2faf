# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials from a program that the kubeconfig names (client.authentication.k8s.io v1 and v1beta1)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import typing as t
from datetime import datetime, timedelta, timezone

from ...core.clock import from_text
from ...core.errors import InvalidInput
from ...core.redact import PLATFORMS, program_environment, redact, register
from .kubeconfig import KubeconfigEntry

_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_OWN_SETTINGS = "client.authentication.k8s.io/exec"  # extension of a cluster whose content is for the plugin
_TIMEOUT = 60.0
_EARLY = timedelta(seconds=30)  # ask again a little before the credential ends


class ExecPlugin:
    """Runs the program when a credential is needed and none is good any more. Safe to use from several threads."""

    def __init__(self, entry: KubeconfigEntry) -> None:
        self._entry = entry
        setting = entry.user["exec"]
        if not isinstance(setting, dict) or not setting.get("command"):
            raise InvalidInput(f"{entry.source}: its exec plugin has no command.")
        if setting.get("apiVersion") not in _VERSIONS:
            raise InvalidInput(
                f"{entry.source}: exec apiVersion {setting.get('apiVersion')!r} is not one of {', '.join(_VERSIONS)}."
            )
        if not all(isinstance(item, dict) and {"name", "value"} <= set(item) for item in setting.get("env") or []):
            raise InvalidInput(f"{entry.source}: each env of its exec plugin must have a name and a value.")
        if setting.get("interactiveMode") == "Always":
            raise InvalidInput(
                f"{entry.source}: its exec plugin {setting['command']} wants to talk to a person, which a playbook run cannot offer."
            )
        self._setting = setting
        self._lock = threading.Lock()
        self._status: dict[str, t.Any] = {}
        self._until: datetime | None = None

    def token(self) -> str:
        """The current bearer token, "" when the plugin gives a certificate instead."""
        return str(self._current().get("token") or "")

    def another(self, refused: str) -> bool:
        """After a 401: a credential without an end is good until the cluster refuses it. Whether there is another token now."""
        with self._lock:
            if self._status.get("token") == refused:
                self._status = {}
        return bool(refused) and self.token() not in ("", refused)

    def certificate(self) -> tuple[str, str]:
        """Client certificate and key as PEM, both "" when the plugin gives a token."""
        status = self._current()
        return str(status.get("clientCertificateData") or ""), str(status.get("clientKeyData") or "")

    def _current(self) -> dict[str, t.Any]:
        with self._lock:
            # the end of a credential is real time, also when a simulated clock runs
            if not self._status or (self._until is not None and datetime.now(timezone.utc) >= self._until - _EARLY):
                self._status = self._run()
                register(self._status.get("token"), self._status.get("clientKeyData"))
                end = self._status.get("expirationTimestamp")
                try:
                    self._until = from_text(str(end)) if end else None
                except ValueError:
                    raise self._failed(f"its expirationTimestamp {end!r} is not a time") from None
            return self._status

    def _failed(self, why: str) -> InvalidInput:
        return InvalidInput(
            f"{self._entry.source}: the exec plugin {self._setting['command']} gave no credential: {why}.",
            remedy=str(self._setting.get("installHint") or "Run it by hand to see what it needs."),
        )

    def _run(self) -> dict[str, t.Any]:
        command = str(self._setting["command"])
        if os.sep in command:
            command = os.path.join(self._entry.folder, command)
        own = {str(item["name"]): str(item["value"]) for item in self._setting.get("env") or []}
        own["KUBERNETES_EXEC_INFO"] = json.dumps(self._request())
        try:
            completed = subprocess.run(
                [command, *(str(part) for part in self._setting.get("args") or [])],
                env=program_environment(own, network=True, prefixes=PLATFORMS),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._failed(f"no answer within {_TIMEOUT:.0f} s") from None
        except OSError as error:
            raise self._failed(str(error.strerror or error)) from error
        if completed.returncode != 0:
            last = redact(completed.stderr.decode("utf-8", "replace").strip())[-300:]
            raise self._failed(f"it ended with code {completed.returncode}: {last or 'no message'}")
        return self._parse(completed.stdout)

    def _request(self) -> dict[str, t.Any]:
        spec: dict[str, t.Any] = {"interactive": False}
        if self._setting.get("provideClusterInfo"):
            cluster = self._entry.cluster
            spec["cluster"] = {"server": self._entry.server}
            for key in ("certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify", "proxy-url"):
                if cluster.get(key):
                    spec["cluster"][key] = cluster[key]
            if (path := cluster.get("certificate-authority")) and "certificate-authority-data" not in spec["cluster"]:
                spec["cluster"]["certificate-authority-data"] = self._encoded(str(path))
            for extension in cluster.get("extensions") or []:
                if isinstance(extension, dict) and extension.get("name") == _OWN_SETTINGS:
                    spec["cluster"]["config"] = extension.get("extension")
        return {"apiVersion": self._setting["apiVersion"], "kind": "ExecCredential", "spec": spec}

    def _encoded(self, path: str) -> str:
        try:
            with open(path, "rb") as file:
                return base64.b64encode(file.read()).decode()
        except OSError as error:
            raise InvalidInput(f"{self._entry.source}: certificate-authority {path} cannot be read: {error}.") from error

    def _parse(self, output: bytes) -> dict[str, t.Any]:
        try:
            answer = json.loads(output)
        except ValueError:
            raise self._failed("its output is not JSON") from None
        status = answer.get("status") if isinstance(answer, dict) else None
        if not isinstance(status, dict) or answer.get("kind") != "ExecCredential":
            raise self._failed("its output is not an ExecCredential with a status")
        if not status.get("token") and not (status.get("clientCertificateData") and status.get("clientKeyData")):
            raise self._failed("its status has neither a token nor a client certificate with key")
        return status
