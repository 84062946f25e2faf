# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new machine must know of the cluster it joins."""

from __future__ import annotations

import dataclasses

from ..errors import InvalidInput
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
    except InvalidInput as error:  # the path stands in an option that counts as secret, so it cannot be told
        raise InvalidInput(f"talos_secrets (TGP_TALOS_SECRETS): {error}") from error
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


def _server_version(context: Context) -> str:
    """A kubelet must not be newer than the API server, so the server's own version is the default."""
    version: str = context.kube.get("/version")["gitVersion"]
    return version.lstrip("v").partition("+")[0].partition("-")[0]
