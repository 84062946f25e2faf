# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's secrets that a worker needs, from whatever the user has of them."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import os
import re
import typing as t

from ..core.errors import InvalidInput
from ..core.redact import register
from .template import at, machine_document, parse

_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterSecrets:
    """What a worker must know of its cluster. Certificates are base64 of PEM; no private key of a CA is ever kept.

    ``endpoint``, ``cluster_name`` and the network facts are "" or () when the source is a bundle, which does not have them.
    ``bootstrap_token`` is the cluster's own lasting token; nodes get one of their own instead.
    """

    trustd_token: str = dataclasses.field(repr=False)
    os_ca_crt: str = dataclasses.field(repr=False)
    k8s_ca_crt: str = dataclasses.field(repr=False)
    cluster_id: str = dataclasses.field(default="", repr=False)
    cluster_secret: str = dataclasses.field(default="", repr=False)
    bootstrap_token: str = dataclasses.field(default="", repr=False)
    endpoint: str = ""
    cluster_name: str = ""
    dns_domain: str = ""
    pod_subnets: tuple[str, ...] = ()
    service_subnets: tuple[str, ...] = ()


# field of ClusterSecrets -> (path in a bundle, path in a machine configuration)
_PATHS = {
    "trustd_token": ("trustdinfo.token", "machine.token"),
    "os_ca_crt": ("certs.os.crt", "machine.ca.crt"),
    "k8s_ca_crt": ("certs.k8s.crt", "cluster.ca.crt"),
    "cluster_id": ("cluster.id", "cluster.id"),
    "cluster_secret": ("cluster.secret", "cluster.secret"),
    "bootstrap_token": ("secrets.bootstraptoken", "cluster.token"),
}
_REQUIRED = ("trustd_token", "os_ca_crt", "k8s_ca_crt")


def read(source: str | t.Mapping[str, t.Any], label: str = "the Talos secrets") -> ClusterSecrets:
    """Read a ``talosctl gen secrets`` bundle, a worker.yaml or controlplane.yaml, or ``get machineconfig -o yaml`` output.

    ``source`` is the decoded mapping, the YAML text, or (one line) the path of a file. InvalidInput names every missing key.
    """
    if isinstance(source, str):
        documents = parse(source if "\n" in source.strip() else _file(source, label), label)
    else:
        documents = [dict(source)]
    if not documents:
        raise InvalidInput(f"{label}: there is nothing in it.", remedy=_REMEDY)
    first = documents[0]
    if isinstance(first.get("spec"), str) and "metadata" in first:
        documents = parse(first["spec"], f"{label} (field spec)")
    elif isinstance(first.get("spec"), t.Mapping) and "metadata" in first:
        documents = [dict(first["spec"])]
    bundle = next((d for d in documents if "trustdinfo" in d or "certs" in d), None)
    config = machine_document(documents)
    if bundle is not None:
        secrets = _collect(bundle, 0, label, required=(*_REQUIRED, "cluster_id", "cluster_secret"))
    elif config is not None and ("machine" in config or "cluster" in config):
        secrets = _with_network(_collect(config, 1, label, required=_REQUIRED), config)
    else:
        raise InvalidInput(f"{label}: this is neither a secrets bundle nor a Talos machine configuration.", remedy=_REMEDY)
    register(secrets.trustd_token, secrets.cluster_secret, secrets.bootstrap_token, secrets.cluster_id)
    return secrets


_REMEDY = (
    "Give the file of `talosctl gen secrets`, a worker.yaml or controlplane.yaml, or the output of "
    "`talosctl get machineconfig -o yaml`."
)


def _file(path: str, label: str) -> str:
    path = os.path.expanduser(path.strip())
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInput(f"{label}: the file {path} cannot be read: {reason}.", remedy=_REMEDY) from None


def _collect(source: t.Mapping[str, t.Any], column: int, label: str, required: t.Collection[str]) -> ClusterSecrets:
    values: dict[str, t.Any] = {}
    problems: list[str] = []
    for field, paths in _PATHS.items():
        path, value = paths[column], at(source, paths[column])
        if value in (None, ""):
            if field in required:
                problems.append(f"{path} is missing.")
            continue
        if not isinstance(value, str):
            problems.append(f"{path} should be text and is of type {type(value).__name__}; write it in quotes.")
            continue
        register(value if field.endswith(("token", "secret")) else None)
        if field.endswith("token") and not _TOKEN.fullmatch(value):
            problems.append(f"{path} is not of the form of 6 characters, a dot, 16 characters (a-z, 0-9).")
        elif field.endswith("crt"):
            certificate = _certificate(value)
            if certificate is None:
                problems.append(f"{path} is not the base64 text of a PEM certificate.")
                continue
            value = certificate
        values[field] = value
    if values.get("os_ca_crt") and values.get("os_ca_crt") == values.get("k8s_ca_crt"):
        os_ca, k8s_ca = (_PATHS[field][column] for field in ("os_ca_crt", "k8s_ca_crt"))
        problems.append(f"{os_ca} and {k8s_ca} are the same certificate: the CA of Talos and that of Kubernetes are two.")
    if problems:
        raise InvalidInput(f"{label} cannot be used.", problems=problems, remedy=_REMEDY)
    return ClusterSecrets(**values)


def _certificate(value: str) -> str | None:
    """Base64 of a PEM certificate (bare PEM is taken too), None when it is none."""
    if value.lstrip().startswith(_CERTIFICATE.decode()):
        return base64.b64encode(value.encode()).decode()
    compact = "".join(value.split())
    try:
        pem = base64.b64decode(compact, validate=True)
    except (binascii.Error, ValueError):
        return None
    return compact if _CERTIFICATE in pem and b"PRIVATE KEY" not in pem else None


def _with_network(secrets: ClusterSecrets, config: t.Mapping[str, t.Any]) -> ClusterSecrets:
    return dataclasses.replace(
        secrets,
        endpoint=_text(at(config, "cluster.controlPlane.endpoint")),
        cluster_name=_text(at(config, "cluster.clusterName")),
        dns_domain=_text(at(config, "cluster.network.dnsDomain")),
        pod_subnets=_texts(at(config, "cluster.network.podSubnets")),
        service_subnets=_texts(at(config, "cluster.network.serviceSubnets")),
    )


def _text(value: t.Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: t.Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
