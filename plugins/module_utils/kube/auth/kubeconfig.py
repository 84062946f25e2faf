# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out which cluster is meant and what proves who we are: kubeconfig files, their merge, a context; or a pod's own account.

The order is that of kubectl: the option, ``K8S_AUTH_KUBECONFIG``, ``KUBECONFIG`` (several paths are merged, the first to name a thing
wins), ``~/.kube/config``, the service account of the pod we run in. Only plain data comes out; credentials.py makes it usable.
"""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ...core.errors import InvalidInput, lazy

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclasses.dataclass(frozen=True)
class KubeconfigEntry:
    """One context, looked up. ``cluster`` and ``user`` are the kubeconfig's own mappings, file paths in them made absolute;
    ``source`` is how messages name it; ``namespace`` the context's default namespace; ``folder`` where an exec plugin may lie;
    ``user_name`` how the kubeconfig names the user, whose file is ``user["_file"]``."""

    server: str
    cluster: t.Mapping[str, t.Any]
    user: t.Mapping[str, t.Any]
    source: str
    namespace: str = ""
    folder: str = ""
    user_name: str = ""


def find(path: str | None = None, context: str | None = None, *, env: t.Mapping[str, str] | None = None) -> KubeconfigEntry:
    """The cluster and user to work with. InvalidInput says in one sentence what is missing and where."""
    environment = os.environ if env is None else env
    origin, paths = _paths(path, environment)
    if paths:
        return _choose(_merge(paths), context or environment.get("K8S_AUTH_CONTEXT") or "", origin, paths)
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environment)
    raise InvalidInput(
        "No cluster is configured: there is no kubeconfig option, K8S_AUTH_KUBECONFIG, KUBECONFIG or ~/.kube/config, "
        "and this is not a pod with a service account.",
        remedy="Set KUBECONFIG to the cluster's kubeconfig file (talosctl kubeconfig writes one).",
    )


def _paths(option: str | None, env: t.Mapping[str, str]) -> tuple[str, list[str]]:
    """Where the setting came from, and the files that exist. Files of a list may be missing, but not all of them."""
    for origin, value in (
        ("option kubeconfig", option),
        ("K8S_AUTH_KUBECONFIG", env.get("K8S_AUTH_KUBECONFIG")),
        ("KUBECONFIG", env.get("KUBECONFIG")),
    ):
        if value:
            named = [os.path.expanduser(part) for part in value.split(os.pathsep) if part]
            existing = [part for part in named if os.path.isfile(part)]
            if not existing:
                raise InvalidInput(f"{origin} names {value}, and there is no such file.", remedy="Correct the path.")
            return origin, existing
    default = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".kube", "config")
    return "the default path", [default] if os.path.isfile(default) else []


def _merge(paths: t.Sequence[str]) -> dict[str, t.Any]:
    merged: dict[str, t.Any] = {"current-context": "", "clusters": {}, "contexts": {}, "users": {}}
    for path in paths:
        content = _load(path)
        merged["current-context"] = merged["current-context"] or str(content.get("current-context") or "")
        for section, inner in (("clusters", "cluster"), ("contexts", "context"), ("users", "user")):
            for number, item in enumerate(_list(content.get(section), path, section)):
                if not isinstance(item, dict) or not item.get("name") or not isinstance(item.get(inner) or {}, dict):
                    raise InvalidInput(f"{path}: {section}[{number}] must have a name and a mapping {inner!r}.")
                value = _absolute(dict(item.get(inner) or {}), os.path.dirname(os.path.abspath(path)))
                merged[section].setdefault(str(item["name"]), {**value, "_file": path})
    return merged


def _load(path: str) -> dict[str, t.Any]:
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except OSError as error:
        raise InvalidInput(f"The kubeconfig {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise InvalidInput(f"The kubeconfig {path} is not valid YAML{where}.") from None  # the text may show a credential
    if not isinstance(content, dict):
        raise InvalidInput(f"The kubeconfig {path} is {'empty' if content is None else 'not a mapping'}.")
    return content


def _list(value: t.Any, path: str, section: str) -> list[t.Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInput(f"{path}: {section} must be a list.")
    return value


_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def _absolute(value: dict[str, t.Any], folder: str) -> dict[str, t.Any]:
    """Relative paths count from the file they stand in."""
    for key in _FILES:
        if value.get(key):
            value[key] = os.path.join(folder, os.path.expanduser(str(value[key])))
    return value


def _choose(config: dict[str, t.Any], wanted: str, origin: str, paths: t.Sequence[str]) -> KubeconfigEntry:
    files = os.pathsep.join(paths)
    name = wanted or config["current-context"]
    if not name:
        raise InvalidInput(
            f"The kubeconfig {files} ({origin}) has no current-context.",
            remedy="Set the option context to one of: " + (", ".join(sorted(config["contexts"])) or "none is there") + ".",
        )
    context = config["contexts"].get(name)
    if context is None:
        raise InvalidInput(
            f"The kubeconfig {files} ({origin}) has no context {name!r}.",
            remedy="Contexts there: " + (", ".join(sorted(config["contexts"])) or "none") + ".",
        )
    source = f"context {name} of {context['_file']}"
    cluster = config["clusters"].get(str(context.get("cluster") or ""))
    if cluster is None:
        raise InvalidInput(f"{source} names the cluster {context.get('cluster')!r}, which is not defined in {files}.")
    user_name = str(context.get("user") or "")
    user = config["users"].get(user_name)
    if user is None and context.get("user"):
        raise InvalidInput(f"{source} names the user {context.get('user')!r}, which is not defined in {files}.")
    server = str(cluster.get("server") or "")
    if not server.startswith(("https://", "http://")):
        raise InvalidInput(f"{source}: the cluster's server {server!r} is not an http(s) address.")
    folder = os.path.dirname(os.path.abspath((user or cluster)["_file"]))
    return KubeconfigEntry(server.rstrip("/"), cluster, user or {}, source, str(context.get("namespace") or ""), folder, user_name)


def in_cluster(env: t.Mapping[str, str], folder: str = SERVICE_ACCOUNT) -> KubeconfigEntry:
    """The account of the pod this process runs in."""
    token, ca = os.path.join(folder, "token"), os.path.join(folder, "ca.crt")
    for path in (token, ca):
        if not os.path.isfile(path):
            raise InvalidInput(
                f"This is a pod, but its service account file {path} is missing.",
                remedy="Set automountServiceAccountToken, or give a kubeconfig.",
            )
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT") or "443"
    host = f"[{host}]" if ":" in host else host
    namespace = ""
    if os.path.isfile(os.path.join(folder, "namespace")):
        with open(os.path.join(folder, "namespace"), encoding="utf-8") as file:
            namespace = file.read().strip()
    cluster = {"certificate-authority": ca}
    return KubeconfigEntry(f"https://{host}:{port}", cluster, {"tokenFile": token}, "the pod's service account", namespace, folder)
