# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at everything once, in the order that keeps new things from being misread (L-12).

Clouds first, then the mesh, then Nodes, pods and the tokens we noted, then our claims: what appears later in the order is newer. Reads of
one stage run side by side. A read that fails leaves None and a sentence, never an empty list.
"""

from __future__ import annotations

import base64
import dataclasses
import re
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..core.errors import ApiError, Forbidden, InvalidInput, NotFound, TgpError, Unauthorized
from ..kube.client import NAMESPACE
from ..kube.nodes import device_plugins
from ..kube.nodes import nodes as read_nodes
from ..kube.pods import is_trial
from ..kube.pods import pods as read_pods
from ..kube.resource_claims import dynamic_resources
from ..kube.services import services_of
from ..mesh.base import find_device
from ..model import (
    Claim,
    CloudView,
    Device,
    IdleProbe,
    Ledger,
    MadeToken,
    Node,
    Observation,
    Pause,
    Phase,
    Pod,
    Pool,
    Probe,
    Published,
)
from ..model.defaults import LAUNCHING, REAPING
from ..offers.market import CachedOffers, Quote, open_cache
from ..planner import pauses
from ..planner.claims.record import LIVE
from ..planner.cost.budgets import budgets
from ..planner.disruption.consolidation import POLICY as CONSOLIDATES
from ..planner.garbage_collection.ownership import Ownership, ownership_of
from ..planner.garbage_collection.termination_steps import waits
from ..planner.offers import launch_backoff
from ..planner.offers.ranking import query_of
from ..planner.provisioning.service import described_pool
from ..planner.provisioning.service_endpoints import address_of
from ..planner.scheduling.devices import with_devices
from ..providers.registry import CAPABILITIES
from ..talos.secrets import ClusterSecrets, read
from ..talos.spec import DEFAULT_TALOS
from .clients import unused
from .context import Context, labels_of_namespaces, uses_dra
from .gpu_metrics import gpu_metrics
from .probe import Prober
from .volumes import with_account_volumes, with_reach

_T = t.TypeVar("_T")
_MEANWHILE = {
    "findings": "everything without a claim counts as seen for the first time; a damaged record is written anew",
    "blocklist": "nothing is launched. Delete a damaged record while no run is active",
    pauses.STATE: "everything counts as paused. Delete a damaged record while no run is active, and pause anew what is to stay paused",
}
NOT_DRAWN = "not drawn yet"  # stands for the generation of a store in a run that writes nothing: no machine is stamped with it


def gather(
    context: Context,
    *,
    pods: bool = True,
    extras: bool = False,
    tokens: bool = False,
    ledger: bool = False,
    exporters: bool = False,
) -> Observation:
    """One observation. Clouds and mesh may fail one by one; without the cluster there is nothing to decide, so that raises. What can be
    rented is not asked (``with_offers``).
    ``extras``: also what clouds keep beside machines. ``tokens``: also the bootstrap tokens that we noted. ``ledger``: also the books;
    they are read anyhow where there is a budget. ``exporters``: also what these say of GPUs, where a pool goes by it."""
    packs = context.settings.mode == "autoscale" or any(pool.consolidation_policy == CONSOLIDATES for pool in context.specs.pools)
    with ThreadPoolExecutor(max_workers=16, thread_name_prefix="observe") as pool:
        views = {name: pool.submit(_look_at_cloud, context, name, extras) for name in asked_clouds(context)}
        clouds = {name: future.result() for name, future in views.items()}
        mesh_problems: list[str] = []
        state_problems: dict[str, str] = {}
        devices_read = pool.submit(_mesh_read, context, "devices", lambda mesh: mesh.devices(), mesh_problems)
        keys_read = pool.submit(_mesh_read, context, "keys", lambda mesh: mesh.keys(), mesh_problems)
        devices, keys = devices_read.result(), keys_read.result()
        nodes_read = pool.submit(read_nodes, context.kube)
        plugins_read = pool.submit(device_plugins, context.kube) if context.settings.mode in LAUNCHING else None
        pods_read = pool.submit(read_pods, context.kube, all=packs, gpu_resources=context.settings.gpu_resources) if pods else None
        tokens_read = pool.submit(_tokens, context) if tokens else None
        dynamic_read = pool.submit(dynamic_resources, context.kube) if uses_dra(context) else None
        pauses_read = pool.submit(context.records.pauses)
        released_read = pool.submit(context.records.released)
        spaces_read = pool.submit(labels_of_namespaces, context) if pods and context.settings.namespace_teams else None
        nodes = tuple(nodes_read.result())
        plugins = plugins_read.result() if plugins_read is not None else None
        all_pods = _all_pods(pods_read.result, optional=exporters and context.settings.mode not in REAPING) if pods_read else None
        if packs and all_pods is not None and context.settings.mode in REAPING:
            moves = any(pool.consolidation_policy == CONSOLIDATES for pool in context.specs.pools)
            all_pods = with_reach(context.kube, all_pods, nodes, context.warn, moves=moves)
        dynamic = dynamic_read.result() if dynamic_read is not None else None
        made = tokens_read.result() if tokens_read is not None else None
        paused = _pauses(pauses_read.result, state_problems)
        released = released_read.result()
    if dynamic is not None:
        translated = with_devices(nodes, all_pods or (), dynamic)
        nodes, all_pods = translated.nodes, None if all_pods is None else translated.pods
        for warning in translated.warnings:
            context.warn(warning)
    readable, damaged = context.store.claim_records()
    claims = tuple(readable)
    clouds = _looked_up(context, clouds, claims)
    mode = context.settings.mode
    services = published(context) if mode in REAPING else ()
    probes = {} if mode == "destroy" else look_at_services(context, clouds, devices, claims, idle=mode in REAPING)
    if mode in REAPING:
        probes |= look_at_nodes(context, nodes, devices, claims)
    used, xids = gpu_metrics(context, claims, nodes, all_pods) if exporters else ({}, {})
    source, offset = context.clocks.offset() or ("", None)
    return Observation(
        now=context.clock.now(),
        cluster_id=context.cluster_id,
        clouds=clouds,
        devices=devices,
        keys=keys,
        tokens=made,
        nodes=nodes,
        device_plugins=plugins,
        dynamic=dynamic,
        pods=None if all_pods is None else tuple(pod for pod in all_pods if not is_trial(pod, context.cluster_id)),
        trials=None if all_pods is None else tuple(pod for pod in all_pods if is_trial(pod, context.cluster_id)),
        claims=claims,
        findings=_state("findings", lambda: context.records.read_times("findings"), state_problems),
        **launch_backoff.observed(_state("blocklist", context.records.blocks, state_problems), context.clock.now()),
        probes=probes,
        utilization=used,
        xids=xids,
        services=services,
        generations=context.records.generations() or (NOT_DRAWN,),
        ledger=_ledger(context) if ledger or budgets(context.specs, context.settings) else None,
        damaged=tuple(damaged),
        mesh_problem=" ".join(dict.fromkeys(mesh_problems)),
        state_problems=state_problems,
        clock_offset=offset,
        clock_source=source,
        released=released,
        offers_read=False,
        pauses=paused,
        namespaces=spaces_read.result() if spaces_read is not None else None,
    )


def with_offers(context: Context, seen: Observation, again: t.Collection[str] = ()) -> tuple[Observation, frozenset[str]]:
    """The same, and what clouds offer whose machines are known; and the clouds whose offers an earlier run read less than five minutes ago.
    Those named in ``again`` are asked in any case. Asked side by side; one may fail without the others."""
    remembered: set[str] = set()

    def asked(name: str) -> CloudView:
        view = with_account_volumes(context, name, seen.clouds[name])
        if view.instances is None:
            return view
        try:
            quote = _offers(context, name, name in again)
        except TgpError as error:
            return dataclasses.replace(view, problem=f"{view.problem} {error}".strip())
        if quote.hit:
            remembered.add(name)
        return dataclasses.replace(view, offers=quote.offers)

    with ThreadPoolExecutor(max_workers=16, thread_name_prefix="offers") as pool:
        views = dict(zip(seen.clouds, pool.map(asked, seen.clouds), strict=True))
    return dataclasses.replace(seen, clouds=views, offers_read=True), frozenset() if again else frozenset(remembered)


def _all_pods(read: t.Callable[[], list[Pod]], *, optional: bool) -> tuple[Pod, ...] | None:
    """All pods. ``optional``: nothing is decided by them, so that None stands for those that cannot be read."""
    try:
        return tuple(read())
    except ApiError:
        if optional:
            return None
        raise


def _state(name: str, read: t.Callable[[], dict[str, t.Any]], problems: dict[str, str]) -> dict[str, t.Any]:
    """A small record beside the claims; empty, with its problem noted, when it cannot be read: that stops no run."""
    try:
        return read()
    except ApiError as error:
        problems[name] = f"tgp-state-{name} cannot be read, so {_MEANWHILE[name]}: {error.message}"
        return {}


def _pauses(read: t.Callable[[], tuple[Pause, ...]], problems: dict[str, str]) -> tuple[Pause, ...]:
    """What is paused; everything while that is not known."""
    found = _state(pauses.STATE, lambda: {"": read()}, problems)
    return found.get("", (pauses.UNREAD,))


def _ledger(context: Context) -> Ledger | None:
    """The books, None when they could not be read."""
    try:
        return context.records.ledger()
    except TgpError as error:
        context.warn(f"The ledger could not be read, so what was spent is unknown: {error}")
        return None


def asked_clouds(context: Context) -> list[str]:
    """The clouds to look at. One that no document names and for which there is no credential is passed over in silence."""
    needed = {claim.cloud for claim in context.records.known_claims()}
    return [
        name
        for name in context.clients.cloud_names()
        if name in needed or not unused(context.task, context.kube, name, context.specs)
    ]


def _look_at_cloud(context: Context, name: str, extras: bool) -> CloudView:
    """Instances, and extras when this run may delete them. One may fail without the others."""
    instances = extra_list = None
    problems, refused = [], False
    try:
        cloud = context.clients.cloud(name)
    except TgpError as error:
        return CloudView(problem=str(error), expected=not unused(context.task, context.kube, name, context.specs))
    try:
        instances = tuple(cloud.instances())
    except TgpError as error:
        refused = isinstance(error, (Unauthorized, Forbidden))
        problems.append(str(error))
    if extras:
        try:
            extra_list = tuple(cloud.extras())
        except TgpError as error:
            problems.append(str(error))
    return CloudView(instances=instances, problem=" ".join(problems), extras=extra_list, refused=refused)


def _offers(context: Context, name: str, ask: bool) -> Quote:
    """What the cloud offers of what the documents want, or unless ``ask`` what it offered less than five minutes ago."""
    query = query_of(context.specs, name)
    return _cached_offers(context).offers(
        name, query, lambda: context.clients.cloud(name).offers(query), context.specs.choice(name), refresh=ask
    )


def _looked_up(context: Context, clouds: t.Mapping[str, CloudView], claims: t.Sequence[Claim]) -> dict[str, CloudView]:
    """The same with what lists miss although claims know it: it is missing only if a look by its id misses it, too (L-2a). Where that look
    fails nothing is known of this cloud's machines."""
    views = dict(clouds)
    for claim in claims:
        view = views.get(claim.cloud)
        if view is None or view.instances is None or not claim.instance_id or claim.phase not in LIVE:
            continue
        if not CAPABILITIES[claim.cloud].rented or any(instance.id == claim.instance_id for instance in view.instances):
            continue
        try:
            instance = context.clients.cloud(claim.cloud).instance(claim.instance_id)
        except TgpError as error:
            problem = f"Its list misses {claim.name}, and a look by the id failed: {error}"
            views[claim.cloud] = dataclasses.replace(view, instances=None, problem=f"{view.problem} {problem}".strip())
            continue
        if instance is not None and not instance.gone:
            views[claim.cloud] = dataclasses.replace(view, instances=(*view.instances, instance))
    return views


def _cached_offers(context: Context) -> CachedOffers:
    """Remembered offers serve for as long as a plan may go by them (L-13); they carry the moment at which they were read."""

    def opened() -> CachedOffers:
        cache = open_cache(context.task, context.task.params.get("offer_cache") or "none", context.kube)
        return CachedOffers(context.task, cache, keep=not context.task.check_mode)

    return context.once("cached_offers", opened)


def _tokens(context: Context) -> tuple[MadeToken, ...] | None:
    """The bootstrap tokens that we noted, None when that list could not be read. It is older than the claims: a token is noted first."""
    try:
        return context.records.tokens.listed()
    except TgpError as error:
        context.warn(f"Our list of bootstrap tokens could not be read, so none of them is removed in this run: {error}")
        return None


def _mesh_read(context: Context, resource: str, read: t.Callable[[t.Any], list[_T]], problems: list[str]) -> tuple[_T, ...] | None:
    try:
        mesh = context.clients.mesh()
        return None if mesh is None else tuple(read(mesh))
    except TgpError as error:
        context.warn(f"The mesh's {resource} could not be read, so nothing of them is removed in this run: {error}")
        problems.append(str(error))
        return None


# ---- asks all services of one observation at once

_WORKERS = 64


class Target(t.NamedTuple):
    """A service that can be asked, by the name of its machine. ``ready``: it counts as usable, so that it may be idle, too."""

    name: str
    pool: Pool
    device: Device
    ready: bool


def look_at_services(
    context: Context,
    clouds: t.Mapping[str, CloudView],
    devices: t.Sequence[Device] | None,
    claims: t.Sequence[Claim],
    *,
    idle: bool,
) -> dict[str, Probe]:
    """What every service that is in the mesh answers, by machine name. ``idle``: also ask usable ones whether they are idle."""
    targets = [*_claimed(context, devices or (), claims), *_unclaimed(context, clouds, devices or (), claims)]
    if not targets:
        return {}
    prober = Prober(context.task)

    def ask(target: Target) -> Probe:
        service = target.pool.service
        if service is None:
            return Probe()
        probe = prober.health(service, target.device)
        if idle and target.ready and target.pool.idle_probe is not None:
            answer, detail = prober.idle(target.pool, target.device)
            probe = dataclasses.replace(probe, idle=answer, idle_detail=detail)
        return probe

    with ThreadPoolExecutor(max_workers=min(_WORKERS, len(targets)), thread_name_prefix="probe") as pool:
        return dict(zip((target.name for target in targets), pool.map(ask, targets), strict=True))


def look_at_nodes(
    context: Context, nodes: t.Sequence[Node], devices: t.Sequence[Device] | None, claims: t.Sequence[Claim]
) -> dict[str, Probe]:
    """What the idle probes of nodes answer, by machine name: of usable machines, where their pool has one."""
    there = {node.name: node for node in nodes if node.ready}
    asked: list[tuple[Claim, IdleProbe, str]] = []
    for claim in claims:
        pool, node = context.specs.pool_of(claim.pool), there.get(claim.node_name or claim.name)
        if (
            pool is not None
            and pool.idle_probed
            and pool.idle_probe is not None
            and node is not None
            and claim.phase is Phase.READY
        ):
            asked.append((claim, pool.idle_probe, _address(claim, node, devices or ())))
    if not asked:
        return {}
    prober = Prober(context.task)

    def ask(one: tuple[Claim, IdleProbe, str]) -> Probe:
        idle, detail = prober.node_idle(one[1], one[0].name, one[2])
        return Probe(idle=idle, idle_detail=detail)

    with ThreadPoolExecutor(max_workers=min(_WORKERS, len(asked)), thread_name_prefix="probe") as pool_of_threads:
        return dict(zip((claim.name for claim, _probe, _address in asked), pool_of_threads.map(ask, asked), strict=True))


def address_in_mesh(context: Context, claim: Claim, node: Node) -> str:
    """Where a node is asked: the address of its mesh device, or without one that of its Node."""
    mesh = context.clients.mesh()
    device = mesh.device(claim.mesh_device_id) if mesh is not None and claim.mesh_device_id else None
    return _address(claim, node, (device,) if device is not None else ())


def _address(claim: Claim, node: Node, devices: t.Sequence[Device]) -> str:
    device = find_device(devices, hostname=claim.name, tags=(), created_after=claim.created).device
    return address_of(device) if device is not None else next(iter(node.addresses), "")


def published(context: Context) -> tuple[Published, ...] | None:
    """Services of ours in the namespaces of described pools; None, with a warning, when they could not be read."""
    places = sorted({pool.namespace for pool in context.specs.pools if pool.service is not None})
    try:
        return tuple(service for place in places for service in services_of(context.kube, place, context.cluster_id))
    except TgpError as error:
        context.warn(f"The Services of containers could not be read, so none of them is removed in this run: {error}")
        return None


def _claimed(context: Context, devices: t.Sequence[Device], claims: t.Sequence[Claim]) -> t.Iterator[Target]:
    for claim in claims:
        pool = context.specs.pool_of(claim.pool)
        if not claim.is_service or not (claim.phase in LIVE or waits(claim)) or pool is None:
            continue
        device = find_device(devices, hostname=claim.name, tags=(), created_after=claim.created).device
        if device is not None and device.online is not False:
            yield Target(claim.name, pool, device, claim.phase in (Phase.READY, Phase.TERMINATING))


def _unclaimed(
    context: Context, clouds: t.Mapping[str, CloudView], devices: t.Sequence[Device], claims: t.Sequence[Claim]
) -> t.Iterator[Target]:
    """Machines of ours whose record may be lost."""
    claimed = {claim.name for claim in claims}
    names = {instance.name for view in clouds.values() for instance in view.instances or () if not instance.gone} - claimed
    for name in sorted(names):
        pool = described_pool(name, context.specs.pools) if ownership_of(name, context.cluster_id) is Ownership.OURS else None
        device = find_device(devices, hostname=name, tags=(), created_after=None).device if pool is not None else None
        if pool is not None and device is not None and device.online is not False:
            yield Target(name, pool, device, False)


# ---- what a new machine must know of the cluster it joins


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
