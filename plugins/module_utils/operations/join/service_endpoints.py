# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a service known in the cluster, and forgets it there (S3-35): its Service and its line in the pool's list of endpoints."""

from __future__ import annotations

import typing as t

from ...kube.services import apply_service, change_list, path_of, remove_service
from ...model import Claim, Device
from ...model.labels import NODEPOOL_LABEL
from ...observe.context import Context
from ...planner.provisioning.service_endpoints import (
    ENDPOINTS,
    endpoint,
    endpoints_name,
    list_name,
    namespace_of,
    service_object,
    with_endpoint,
)

_EMPTY = "[]"


def publish(context: Context, claim: Claim, device: Device) -> bool:
    """Write what differs; True when anything was written."""
    pool = context.specs.pool_of(claim.pool)
    written = apply_service(context.kube, service_object(claim, pool, device, context.cluster_id))
    return _list(context, claim, endpoint(claim, pool, device)) or written


def withdraw(context: Context, claim: Claim) -> bool:
    """Take it out of the list and remove the Service; True when there was anything of it."""
    listed = _list(context, claim, None)
    return remove_service(context.kube, namespace_of(claim), claim.name) or listed


def withdraw_found(context: Context, place: str, uid: str) -> bool:
    """The same for a Service at ``place`` ("namespace/name") that nobody has a record of; False when it is not there any more."""
    namespace, _slash, name = place.partition("/")
    raw = context.kube.find(path_of(namespace, "services", name))
    if raw is None or raw["metadata"]["uid"] != uid:
        return False
    pool = (raw["metadata"].get("labels") or {}).get(NODEPOOL_LABEL, "")
    if pool:
        with context.records.money:
            change_list(context.kube, namespace, list_name(pool), ENDPOINTS, lambda text: with_endpoint(text, name, None), _EMPTY)
    return remove_service(context.kube, namespace, name)


def _list(context: Context, claim: Claim, line: dict[str, t.Any] | None) -> bool:
    with context.records.money:  # machines of one pool share the list
        return change_list(
            context.kube,
            namespace_of(claim),
            endpoints_name(claim),
            ENDPOINTS,
            lambda text: with_endpoint(text, claim.name, line),
            _EMPTY,
        )
