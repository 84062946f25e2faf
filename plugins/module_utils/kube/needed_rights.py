# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights that the playbooks need; files/rbac.yml grants them."""

from __future__ import annotations

from . import bootstrap_tokens, csr
from .rbac import Right

RIGHTS = (
    *(Right(verb, "nodes") for verb in ("get", "list", "watch", "patch", "delete")),
    Right("patch", "nodes/status"),
    *(Right(verb, "pods") for verb in ("get", "list", "watch", "delete")),
    Right("create", "pods/eviction"),
    *(Right(verb, "poddisruptionbudgets", group="policy") for verb in ("list", "watch")),
    Right("list", "volumeattachments", group="storage.k8s.io"),
    *(Right(verb, "certificatesigningrequests", group="certificates.k8s.io") for verb in ("get", "list", "watch")),
    Right("update", "certificatesigningrequests/approval", group="certificates.k8s.io"),
    Right("approve", "signers", group="certificates.k8s.io", name=csr.SIGNER),
    Right("get", "clusterrolebindings", group="rbac.authorization.k8s.io", name=bootstrap_tokens.OWN_BINDING),
    *(Right(verb, "leases", "coordination.k8s.io", "tgp-system") for verb in ("get", "create", "update")),
    *(Right(verb, "secrets", namespace="kube-system") for verb in ("create", "delete")),
)
"""What a whole cycle of renting and terminating does in the cluster, whatever store the claims are in."""
CLAIM_RIGHTS = tuple(
    Right(verb, "configmaps", namespace="tgp-system") for verb in ("get", "list", "create", "update", "patch", "delete")
)
NODE_CLAIM_RIGHTS = (
    *(Right(verb, "gpunodeclaims", "tgp.io", "tgp-system") for verb in ("get", "list", "create", "patch", "delete")),
    Right("get", "customresourcedefinitions", group="apiextensions.k8s.io", name="gpunodeclaims.tgp.io"),
)
OBJECT_RIGHTS = tuple(
    Right(verb, f"{plural}{sub}", "tgp.io")
    for plural in ("gpunodeclasses", "gpunodepools", "gpurequests")
    for verb, sub in (("list", ""), ("get", ""), ("patch", ""), ("patch", "/status"))
)
"""With documents_from_cluster: read them, hold them by a finalizer while they have machines, and write their status."""


def claim_rights(store: str | None) -> tuple[Right, ...]:
    """What the records need, by the option ``claim_store``. Findings and the ledger are ConfigMaps beside GPUNodeClaim objects, too."""
    return {"directory": (), "crd": (*CLAIM_RIGHTS, *NODE_CLAIM_RIGHTS)}.get(store or "cluster", CLAIM_RIGHTS)
