# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be right before anything is rented: templates, the cluster's facts, rights in it, and the mesh's willingness."""

from __future__ import annotations

from ..clock import SystemClock
from ..clouds.registry import CAPABILITIES, ENTRIES
from ..cluster import csr, tokens
from ..cluster.rights import Right, missing_rights
from ..errors import InvalidInput, TgpError
from ..fleet.model import Lane, NodeClass, Wishes
from ..fleet.offers import accepted_lanes
from ..observe.cluster_facts import cluster_facts
from ..observe.context import Context
from ..observe.credentials import unused
from ..observe.templates import template_of
from ..talos.image_choice import schematic_problems
from ..talos.validate import template_problems
from ..talos.versions import DEFAULT_TALOS
from .payload import needs_payload
from .rehearsal import rehearsal_faults
from .serve_check import check_places, service_faults, service_rights

_MAX_SKEW = 120.0
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
    Right("get", "clusterrolebindings", group="rbac.authorization.k8s.io", name=tokens.OWN_BINDING),
    *(Right(verb, "leases", "coordination.k8s.io", "tgp-system") for verb in ("get", "create", "update")),
    *(Right(verb, "secrets", namespace="kube-system") for verb in ("create", "delete")),
)
"""What a whole cycle of renting and giving back does in the cluster, whatever store the claims are in."""
CLAIM_RIGHTS = tuple(
    Right(verb, "configmaps", namespace="tgp-system") for verb in ("get", "list", "create", "update", "patch", "delete")
)


def check_before_renting(context: Context) -> None:
    """InvalidInput with every reason, one sentence each, when a machine of the wished pools could not join."""
    problems: list[str] = []
    classes = _used_classes(context)
    for node_class in classes:
        problems += [f"GPUNodeClass {node_class.name}: {text}" for text in template_faults(context, node_class)]
        problems += _no_cloud(context, node_class)
    problems += service_faults(context)
    if any(makes_nodes(context.wishes, node_class) for node_class in classes):
        try:
            cluster_facts(context)
        except TgpError as error:
            problems.append(str(error))
        else:
            problems += [] if problems else rehearsed(context, classes)
    if problems:
        raise InvalidInput("Nothing was rented, because a machine could not join:", problems=problems)
    rehearses = context.task.check_mode or context.task.params.get("save_to")
    if classes and not rehearses:  # who only rehearses needs no right to change anything
        check_rights(context)
        check_places(context)
    check_mesh(context, classes)


def rehearsed(context: Context, classes: list[NodeClass]) -> list[str]:
    """What a machine of each class would be refused for. talosctl is asked only when that is wanted: this is part of every run."""
    wanted = bool(context.task.params.get("talosctl"))
    return [
        f"GPUNodeClass {node_class.name}: {text}"
        for node_class in classes
        if makes_nodes(context.wishes, node_class)
        for text in rehearsal_faults(context, node_class, second_opinion=wanted)
    ]


def check_rights(context: Context) -> str:
    """Ask the API server for every right that giving a machine back will need, too; returns what was proven."""
    own_store = context.task.params.get("claim_store") == "directory"
    needed = (*RIGHTS, *(() if own_store else CLAIM_RIGHTS), *service_rights(context.wishes))
    missing = missing_rights(context.kube, needed)
    if missing:
        raise InvalidInput("Rights are missing in the cluster:", problems=missing)
    if _takes_kubelets(context) and not tokens.may_ask(context.kube):
        raise InvalidInput(
            f"Machines of lane kubelet could not ask for a certificate: no ClusterRoleBinding {tokens.OWN_BINDING} gives the group "
            f"{tokens.OWN_GROUP} the ClusterRole system:node-bootstrapper.",
            remedy="kubectl apply -f files/rbac.yml (of this collection).",
        )
    return f"all {len(needed)} there"


def _takes_kubelets(context: Context) -> bool:
    """Whether a pool may get machines of lane kubelet."""
    classes = context.wishes.classes
    return any(
        Lane.KUBELET in accepted_lanes(pool) and Lane.KUBELET in CAPABILITIES[one.cloud].lanes
        for pool in context.wishes.pools
        if pool.service is None and pool.node_class in classes
        for one in classes[pool.node_class].clouds
        if one.enabled and one.cloud in CAPABILITIES
    )


def check_clock(context: Context) -> str:
    """Deadlines and prices hang on time, so a clock that is off is refused. A simulated clock has nothing to be compared with."""
    if not isinstance(context.clock, SystemClock):
        return "simulated"
    skew = context.kube.skew()
    if abs(skew) > _MAX_SKEW:
        raise InvalidInput(
            f"This machine's clock and the API server's differ by {skew:+.0f} seconds.",
            remedy="Set up time synchronisation on both; deadlines and bills depend on it.",
        )
    return f"{skew:+.0f} s from the API server's"


def check_mesh(context: Context, classes: list[NodeClass]) -> str:
    """Prove that keys with the classes' tags can be made; returns what was proven."""
    mesh = context.mesh()
    tags = sorted({tag for node_class in classes for tag in node_class.mesh.tags})
    if mesh is not None and mesh.own_server and not context.task.params.get("mesh_login_server"):
        context.warn(
            "The mesh is a headscale and mesh_login_server is not given: machines ask Tailscale itself and are refused, unless the "
            "template names the server (--login-server in TS_EXTRA_ARGS)."
        )
    return mesh.check(tags) if mesh is not None else "no mesh is used"


def template_faults(context: Context, node_class: NodeClass) -> list[str]:
    """Everything wrong with a class's template; none where its machines need no configuration from us."""
    if not makes_nodes(context.wishes, node_class):
        return []
    found = template_problems(
        template_of(context, node_class),
        node_class.talos_image,
        context.task.params.get("talos_version") or "",
        patches=node_class.talos_patches,
        registry_mirrors=node_class.registry_mirrors,
        mesh=node_class.mesh,
    )
    if node_class.talos_schematic is not None:
        version = context.task.params.get("talos_version") or DEFAULT_TALOS
        found += schematic_problems(
            node_class.talos_schematic,
            node_class.talos_image,
            version,
            models=node_class.gpu_types,
            tailscale=node_class.mesh.backend == "tailscale",
        )
    return found


def _no_cloud(context: Context, node_class: NodeClass) -> list[str]:
    """A class that would take any cloud needs one that is configured."""
    choices = [one for one in node_class.clouds if one.enabled]
    if not all(one.implicit for one in choices):
        return []
    if not all(unused(context.task, context.kube, one.cloud, context.wishes) for one in choices):
        return []
    variables = [entry.variables(entry.key)[0] for name in (one.cloud for one in choices) if (entry := ENTRIES[name]).key]
    return [f"{node_class.name}: no provider is named and no cloud is configured. Set one of {', '.join(variables)}."]


def makes_nodes(wishes: Wishes, node_class: NodeClass) -> bool:
    """Whether machines of the class get a configuration from us. Services need none: a class that only they use needs no template."""
    pools = [pool for pool in wishes.pools if pool.node_class == node_class.name]
    if pools and all(pool.service is not None for pool in pools):
        return False
    return any(one.enabled and needs_payload(node_class, one.cloud) for one in node_class.clouds)


def _used_classes(context: Context) -> list[NodeClass]:
    names = {pool.node_class for pool in context.wishes.pools if context.wishes.nodes.get(pool.key, 0) > 0}
    return [node_class for name, node_class in sorted(context.wishes.classes.items()) if name in names]
