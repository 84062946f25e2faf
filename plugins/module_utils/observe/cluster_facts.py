# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new machine must know of the cluster it joins."""

from __future__ import annotations

import base64
import dataclasses
import re

from ..core.errors import Forbidden, InvalidInput, NotFound
from ..kube.namespace import NAMESPACE
from ..talos.secrets import ClusterSecrets, read
from ..talos.versions import DEFAULT_TALOS
from .context import Context


@dataclasses.dataclass(frozen=True)
class ClusterFacts:
    """``endpoint`` is the API's URL as the machine reaches it; versions are plain ("1.36.3")."""

    secrets: ClusterSecrets = dataclasses.field(repr=False)
    endpoint: str
    cluster_name: str
    kubernetes_version: str
    talos_version: str
    login_server: str


def cluster_facts(context: Context) -> ClusterFacts:
    """Read once per call; InvalidInput names the option that is missing."""
    return context.once("cluster_facts", lambda: _read(context))


def _read(context: Context) -> ClusterFacts:
    params = context.task.params
    source = params.get("talos_secrets")
    if not source:
        raise InvalidInput(
            "The cluster's Talos secrets are not given, so no machine configuration can be made.",
            remedy="Set talos_secrets (or TGP_TALOS_SECRETS) to a secrets bundle of `talosctl gen secrets`, or to an existing worker.yaml.",
        )
    try:
        secrets = read(source)
    except InvalidInput as error:  # a name alone counts as a secret, so that the option has to be named
        raise InvalidInput(f"talos_secrets (TGP_TALOS_SECRETS): {error}") from error
    _refuse_another_cluster(context, secrets)
    endpoint = params.get("control_plane_endpoint") or secrets.endpoint
    if not endpoint:
        raise InvalidInput(
            "The control plane's address is not known: a secrets bundle does not contain it.",
            remedy="Set control_plane_endpoint (or TGP_CONTROL_PLANE_ENDPOINT), for example https://100.64.0.1:6443.",
        )
    return ClusterFacts(
        secrets=secrets,
        endpoint=endpoint,
        cluster_name=params.get("cluster_name") or secrets.cluster_name or "talos",
        kubernetes_version=params.get("kubernetes_version") or _server_version(context),
        talos_version=params.get("talos_version") or DEFAULT_TALOS,
        login_server=params.get("mesh_login_server") or "",
    )


def _refuse_another_cluster(context: Context, secrets: ClusterSecrets) -> None:
    """Every cluster publishes its CA in each namespace; a bundle with another one would give machines that never join."""
    published: set[str] = set()
    for namespace in (NAMESPACE, "default"):  # ours may not exist yet
        try:
            raw = context.kube.get(f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt")
        except (Forbidden, NotFound):
            continue  # not published or not ours to read: nothing is known against the bundle
        published = _certificates(str((raw.get("data") or {}).get("ca.crt", "")))
        break
    given = _certificates(base64.b64decode(secrets.k8s_ca_crt).decode("ascii", "replace"))
    if published and given and not published & given:
        raise InvalidInput(
            "talos_secrets (TGP_TALOS_SECRETS) are those of another cluster: their Kubernetes CA is not the one of the cluster that "
            f"{context.kube.source} leads to. Machines with these secrets would never join.",
            remedy="Give the secrets of this cluster, or the kubeconfig of theirs.",
        )


def _certificates(text: str) -> set[str]:
    """The certificates of a PEM text, each as its base64 without line ends."""
    return {"".join(body.split()) for body in re.findall(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", text, re.S)}


def _server_version(context: Context) -> str:
    """A kubelet must not be newer than the API server, so the server's own version is the default."""
    version: str = context.kube.get("/version")["gitVersion"]
    return version.lstrip("v").partition("+")[0].partition("-")[0]
