# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials that Kubernetes' official Python client loads: those of exec plugins (client.authentication.k8s.io v1 and v1beta1) and
those of the auth-provider oidc. The client is imported when one of them is needed."""

from __future__ import annotations

import base64
import contextlib
import os
import ssl
import sys
import threading
import typing as t
from datetime import datetime, timedelta, timezone

from ...core.clock import from_text
from ...core.errors import InvalidInput, MissingLibrary, lazy
from ...core.redact import PLATFORMS, program_environment, redact, register
from .kubeconfig import KubeconfigEntry

if t.TYPE_CHECKING:
    import certifi
    import kubernetes
    import yaml
    from kubernetes import client
    from kubernetes.config import exec_provider, kube_config
else:
    certifi = lazy("certifi", "kubernetes")  # which it comes with
    kubernetes = lazy("kubernetes")
    client = lazy("kubernetes.client", "kubernetes")
    exec_provider = lazy("kubernetes.config.exec_provider", "kubernetes")
    kube_config = lazy("kubernetes.config.kube_config", "kubernetes")
    yaml = lazy("yaml", "pyyaml")

_OLDEST = 33  # older ones cannot pass the cluster to an exec plugin


def _check_version() -> None:
    """MissingLibrary where another collection or program has left an older client."""
    version = str(kubernetes.__version__)
    if int(version.partition(".")[0]) < _OLDEST:
        raise MissingLibrary(
            f"The Python library kubernetes {version} is too old for the credentials of this kubeconfig.",
            remedy=f"Update it in the interpreter that runs the module: pip install 'kubernetes>={_OLDEST}.1'.",
            library="kubernetes",
        )


# ---- programs that give a credential

_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_OWN_SETTINGS = "client.authentication.k8s.io/exec"  # extension of a cluster whose content is for the plugin
_TIMEOUT = 60  # s
_EARLY = timedelta(seconds=30)  # ask again a little before the credential ends
_WORDS = 300  # characters of what a program says at its end

# The client's ExecProvider (37.0) lets the program read our standard input and waits for it without a limit, also after its end while
# a process that it started holds its output. This script stands between the two. ExecPlugin adds what else is missing: an environment
# without our keys, credentials kept until they expire, certificates. The client's KubeConfigLoader is not used for exec plugins: it logs
# a failure and goes on without a credential, and writes private keys to files that stay when a worker is killed.
_GUARD = """
import os, signal, subprocess, sys
limit, *command = sys.argv[1:]
pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
try:
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **pipes)
except OSError as error:
    sys.exit(str(error))
status = 0
try:
    output, words = program.communicate(timeout=float(limit))
except subprocess.TimeoutExpired as late:
    output, words = late.stdout or b"", late.stderr or b""
finally:
    if program.poll() is None:
        os.killpg(program.pid, signal.SIGKILL)
        status = f"no answer within {limit} s"
sys.stdout.buffer.write(output)
sys.stderr.buffer.write(words)
if not status and program.returncode < 0:
    status = f"ended by signal {-program.returncode}"
sys.exit(status or program.returncode)
"""


class ExecPlugin:
    """Runs the program when a credential is needed and none is valid. Safe to use from several threads."""

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
        _check_version()
        command = str(self._setting["command"])
        if os.sep in command:
            command = os.path.join(self._entry.folder, command)
        arguments = [str(part) for part in self._setting.get("args") or []]
        guarded = {
            "apiVersion": self._setting["apiVersion"],
            "command": sys.executable,
            "args": ["-I", "-S", "-c", _GUARD, str(_TIMEOUT), command, *arguments],
            "provideClusterInfo": bool(self._setting.get("provideClusterInfo")),
        }
        own = {str(item["name"]): str(item["value"]) for item in self._setting.get("env") or []}
        cluster = self._cluster() if guarded["provideClusterInfo"] else {}
        provider = exec_provider.ExecProvider(
            kube_config.ConfigNode("exec", guarded), None, kube_config.ConfigNode("cluster", cluster)
        )
        provider.env = program_environment(own, network=True, prefixes=PLATFORMS)
        try:
            with _no_terminal():
                status = provider.run()
        except (exec_provider.ConfigException, OSError, ValueError, TypeError) as error:  # TypeError: JSON that is not an object
            said = redact(str(error)).removeprefix("exec: ")
            raise self._failed(said if len(said) <= _WORDS else f"... {said[-_WORDS:]}") from None
        if not isinstance(status, dict):
            raise self._failed("its output is not an ExecCredential with a status")
        if not status.get("token") and not (status.get("clientCertificateData") and status.get("clientKeyData")):
            raise self._failed("its status has neither a token nor a client certificate with key")
        return status

    def _cluster(self) -> dict[str, t.Any]:
        """The plugin's ``spec.cluster``, in the form of kubectl: the client would pass the kubeconfig's entry as it is, with the
        names of files."""
        cluster = self._entry.cluster
        told: dict[str, t.Any] = {"server": self._entry.server}
        for key in ("certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify", "proxy-url"):
            if cluster.get(key):
                told[key] = cluster[key]
        if (path := cluster.get("certificate-authority")) and "certificate-authority-data" not in told:
            told["certificate-authority-data"] = self._encoded(str(path))
        for extension in cluster.get("extensions") or []:
            if isinstance(extension, dict) and extension.get("name") == _OWN_SETTINGS:
                told["config"] = extension.get("extension")
        return told

    def _encoded(self, path: str) -> str:
        try:
            with open(path, "rb") as file:
                return base64.b64encode(file.read()).decode()
        except OSError as error:
            raise InvalidInput(f"{self._entry.source}: certificate-authority {path} cannot be read: {error}.") from error


_stdout = threading.Lock()


class _NoTerminal:
    """Standard output as it is, except that ``isatty`` answers False."""

    def __init__(self, output: t.TextIO) -> None:
        self._output = output

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._output, name)


@contextlib.contextmanager
def _no_terminal() -> t.Iterator[None]:
    """Where standard output is a terminal, as for an inventory, the client tells the program that a person can answer, and does not
    capture its error messages."""
    with _stdout:
        output = sys.stdout
        if hasattr(output, "isatty") and output.isatty():
            sys.stdout = t.cast("t.TextIO", _NoTerminal(output))
        try:
            yield
        finally:
            sys.stdout = output


# ---- OpenID Connect

#: the only auth-provider that Kubernetes still has. That of gcp would start a program of the kubeconfig with all our variables
OIDC = "oidc"


class OidcToken:
    """Gives the id-token of the auth-provider oidc at each call. One that expires within five minutes is renewed at the issuer first."""

    def __init__(self, entry: KubeconfigEntry) -> None:
        self._entry = entry
        given = entry.user["auth-provider"].get("config") or {}
        if not isinstance(given, dict):
            raise InvalidInput(f"{entry.source}: the config of its auth-provider {OIDC} must be a mapping.")
        settings = {key: str(value) for key, value in given.items() if value}  # a copy: the client changes what it is given
        settings.setdefault("client-secret", "")  # a public client has none
        register(settings.get("refresh-token"), settings["client-secret"])
        if not {"idp-certificate-authority", "idp-certificate-authority-data"} & set(settings):
            # without an authority the client asks an unchecked issuer where to send the refresh token
            settings["idp-certificate-authority"] = ssl.get_default_verify_paths().cafile or certifi.where()
        self._settings = settings
        self._last = settings.get("id-token")

    def __call__(self) -> str:
        """InvalidInput when the client gives none."""
        config = {
            "current-context": "own",
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
            "clusters": [{"name": "own", "cluster": {}}],
            "users": [{"name": "own", "user": {"auth-provider": {"name": OIDC, "config": self._settings}}}],
        }
        _check_version()
        configuration = client.Configuration()
        try:
            kube_config.KubeConfigLoader(config, config_base_path="", config_persister=self._renewed).load_and_set(configuration)
        except InvalidInput:
            raise
        except Exception as error:  # noqa: BLE001 - of the client, urllib3, requests and oauthlib, whatever they raise
            said = redact(f"{type(error).__name__}: {error}")
            raise self._failed(" ".join(said.split())[:_WORDS]) from None
        given = configuration.api_key
        token = str(given.get("BearerToken") or given.get("authorization") or "").removeprefix("Bearer ")  # the latter in 33
        if not token:
            raise self._failed("its id-token is not a JSON Web Token")
        return token

    def _failed(self, why: str) -> InvalidInput:
        return InvalidInput(
            f"{self._entry.source}: its auth-provider {OIDC} gave no token: {why}.",
            remedy="Log in again with the program that wrote the kubeconfig.",
        )

    def _renewed(self) -> None:
        """Called by the client after it asked the issuer, also in vain: it ignores an answer other than 200 and an unknown client-id."""
        token = self._settings.get("id-token")
        if token == self._last:
            raise self._failed(f"{self._settings.get('idp-issuer-url')} did not renew it")
        self._last = token
        register(token, self._settings.get("refresh-token"))
        with contextlib.suppress(OSError):  # a kubeconfig that is mounted read-only: this run has its token
            self._save()

    def _save(self) -> None:
        """Renewed tokens replace those of the kubeconfig, as kubectl does it: many issuers accept a refresh token once only. The file is
        overwritten in place, so that owner, mode and links stay; it is never empty for others that read it."""
        path = self._entry.user["_file"]
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
        for user in content["users"]:
            if user.get("name") == self._entry.user_name:
                user["user"]["auth-provider"]["config"].update({key: self._settings[key] for key in ("id-token", "refresh-token")})
        data = yaml.safe_dump(content, sort_keys=False).encode()
        with open(path, "r+b") as output:
            output.write(data)
            output.truncate()
