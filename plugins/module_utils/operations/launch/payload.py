# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes what one machine is handed at boot: its configuration, rendered, checked and packed for its lane and its cloud."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from datetime import timedelta

from ...bootstrap.container import container_for
from ...bootstrap.payload import payload
from ...core.clock import from_text
from ...core.errors import ApiError, InvalidInput, LockLost, TgpError
from ...kube import bootstrap_tokens
from ...kube.bootstrap_tokens import Token
from ...kube.client import read_secret
from ...mesh.base import Mesh, description_of
from ...model import Claim, CloudChoice, Container, Lane, NodeClass, Offer, Pool
from ...model.mesh import Tunnel
from ...observe.clients import cloud_credential
from ...observe.context import Context
from ...observe.gather import ClusterFacts, cluster_facts
from ...planner.garbage_collection import silence
from ...planner.offers import launch_backoff
from ...planner.scheduling import capacity
from ...providers.disk_images import LONGEST_IMPORT, Consequence, DiskImage, ImagePolicy, WantedImage, consequence
from ...providers.registry import CAPABILITIES, ENTRIES
from ...store import lease
from ...talos.images.nvidia import image_of, ordered_schematic
from ...talos.images.schematics import whole_version
from ...talos.spec import NodeSpec
from ..talos_image import ImageOrder, image_for
from .wireguard_peers import tunnel_for


@dataclasses.dataclass(frozen=True)
class Enrolment:
    """The secrets that let one machine in, once: its mesh key or its end of a tunnel, and its bootstrap token ("id.secret") of ``group``. Empty
    = not needed."""

    mesh_key: str = dataclasses.field(default="", repr=False)
    tunnel: Tunnel | None = dataclasses.field(default=None, repr=False)
    token: str = dataclasses.field(default="", repr=False)
    group: str = ""


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What goes into the create call: ``text`` (a secret; None = the machine needs nothing from us) and the lane it is for.
    ``environment`` goes with it where the carrier is the environment; ``container`` stands instead of both on lane service."""

    text: str | None = dataclasses.field(repr=False)
    lane: Lane
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    container: Container | None = None


def needs_payload(node_class: NodeClass, cloud: str) -> bool:
    """Own machines that are installed for good are only powered on (``payload: none``); every other machine is configured."""
    settings = next((choice.settings for choice in node_class.clouds if choice.cloud == cloud), {})
    return CAPABILITIES[cloud].rented or settings.get("payload", "none") != "none"


def lane_for(offer: Offer, pool: Pool | None) -> Lane:
    """The first lane the pool accepts that this offer can serve."""
    wanted = pool.lanes if pool and pool.lanes else offer.lanes
    for lane in wanted:
        if lane in offer.lanes:
            return lane
    raise InvalidInput(f"{offer.cloud} {offer.id} serves none of the pool's lanes ({', '.join(lane.value for lane in wanted)}).")


def container(
    context: Context, claim: Claim, cloud: str, pool: Pool | None, node_class: NodeClass, enrolment: Enrolment
) -> Container:
    """The container of one machine of lane service, the values of its Secrets read. InvalidInput when it cannot be made."""
    if pool is None or pool.service is None:
        raise InvalidInput(
            f"{claim.name}: no document says any more what the services of {claim.pool} run.",
            remedy="Give the pool's document back, or let reap.yml take the machine down.",
        )
    refs = pool.service.environment_from
    secrets = {
        name: context.once(("secret", ref), functools.partial(read_secret, context.kube, ref.namespace, ref.name, ref.key))
        for name, ref in refs.items()
    }
    return container_for(
        claim,
        pool.service,
        node_class.mesh,
        cluster_id=context.cluster_id,
        mesh_key=enrolment.mesh_key,
        login_server=context.task.params.get("mesh_login_server") or "",
        secrets=secrets,
        capability=CAPABILITIES[cloud],
    )


def node_spec(
    context: Context, claim: Claim, offer: Offer, pool: Pool | None, node_class: NodeClass, enrolment: Enrolment, lane: Lane
) -> NodeSpec:
    """Everything that the configuration of one machine is made from."""
    facts: ClusterFacts = cluster_facts(context)
    image = image_of(node_class.talos_schematic, node_class.talos_image, facts.talos_version)
    return NodeSpec(
        name=claim.name,
        pool=claim.pool.partition("/")[2],
        index=claim.index,
        secrets=facts.secrets,
        bootstrap_token=enrolment.token,
        lane=lane,
        cloud=offer.cloud,
        endpoint=facts.endpoint,
        cluster_name=facts.cluster_name,
        instance_type=offer.instance_type,
        region=offer.cloud_region or offer.region,
        labels=capacity.node_labels(dataclasses.replace(claim, offer=offer, cloud=offer.cloud), pool, context.cluster_id),
        annotations={},
        taints=capacity.taints(pool),
        startup_taints=capacity.startup_taints(pool),
        ephemeral_taint=False,
        gpu_count=offer.gpu_count,
        model=offer.model,
        mesh=node_class.mesh,
        auth_key=enrolment.mesh_key,
        tunnel=enrolment.tunnel,
        login_server=facts.login_server,
        kubernetes_version=facts.kubernetes_version,
        talos_version=image.release(facts.talos_version),
        installer_image=image.installer,
        extensions=image.extensions,
        registry_mirrors=node_class.registry_mirrors,
        patches=node_class.talos_patches,
        guard=silence.guard_of(node_class, CAPABILITIES[offer.cloud]) if lane is Lane.KUBELET else None,
        guard_lease=lease.path_of(context.cluster_id),
    )


def payload_for(
    context: Context, claim: Claim, offer: Offer, pool: Pool | None, node_class: NodeClass, enrolment: Enrolment
) -> Rendered:
    """The payload of one machine. InvalidInput, before anything is rented, when it would not boot."""
    lane = lane_for(offer, pool)
    if lane is Lane.SERVICE:
        return Rendered(None, lane, container=container(context, claim, offer.cloud, pool, node_class, enrolment))
    if not needs_payload(node_class, offer.cloud):
        return Rendered(None, lane)
    spec = node_spec(context, claim, offer, pool, node_class, enrolment, lane)
    made = payload(spec, context.template_of(node_class), capability=CAPABILITIES[offer.cloud])
    for warning in made.warnings:
        context.warn(f"{claim.name}: {warning}")
    return Rendered(made.text, lane, made.environment)


# ---- makes the secrets that let one machine in: a mesh key or its end of a tunnel, and a bootstrap token where it becomes a node. What
# can be known of them goes recorded at once

_KEY_LIFE = 3600


def enrol(
    context: Context,
    claim: Claim,
    node_class: NodeClass,
    note: t.Callable[..., None],
    keep: t.Callable[..., None] | None = None,
) -> Enrolment:
    """Fresh ones for this machine; those of an earlier, interrupted try are taken back first. None for a machine that is only switched
    on. ``note`` writes fields of the claim; ``keep`` takes those that a later write may bring: a key and a token whose ids never reach the
    claim are found by other means and end after an hour."""
    keep = keep or note
    if not needs_payload(node_class, claim.cloud):
        return Enrolment()
    mesh = context.clients.mesh()
    if mesh is not None and claim.mesh_key_id:
        mesh.delete_key(claim.mesh_key_id)
    take_back_all(context, claim)
    choice = node_class.mesh
    key = None
    tunnel = None
    if choice.hub_unread and choice.hub_secrets is not None and claim.lane is not Lane.SERVICE:
        why = choice.hub_secrets.problem or f"the Secrets of {choice.hub_secrets.path} were not read"
        raise InvalidInput(f"{claim.name}: the WireGuard hub of class {node_class.name} is unknown: {why}")
    if choice.hub is not None and claim.lane is not Lane.SERVICE:
        tunnel = tunnel_for(context, claim, choice.hub, note)
    if mesh is not None and choice.backend == "tailscale":
        _forget_lost_keys(context, claim, mesh)
        key = mesh.create_key(claim.name, tags=choice.tags, ephemeral=choice.ephemeral, expiry_seconds=_KEY_LIFE)
        keep(mesh_backend=choice.backend, mesh_key_id=key.id)
    if claim.lane is Lane.SERVICE:  # a container is not a Node: there is nothing that it could bootstrap
        return Enrolment(mesh_key=key.secret if key else "")
    enrolment = Enrolment(mesh_key=key.secret if key else "", tunnel=tunnel)
    return _with_token(context, claim, enrolment, claim.lane, keep)


def of_lane(context: Context, claim: Claim, enrolment: Enrolment, lane: Lane, keep: t.Callable[..., None]) -> Enrolment:
    """The same for a machine that gets another lane than the one that was rented for first: with a token of that lane, and the former one taken
    back."""
    if not enrolment.token or enrolment.group == _group_of(lane):
        return enrolment
    take_back_all(context, claim)
    return _with_token(context, claim, enrolment, lane, keep)


def _with_token(context: Context, claim: Claim, enrolment: Enrolment, lane: Lane, keep: t.Callable[..., None]) -> Enrolment:
    token = make_token(context, claim.name, _group_of(lane))
    keep(token_id=token.id)
    return dataclasses.replace(enrolment, token=token.text, group=_group_of(lane))


def _group_of(lane: Lane) -> str:
    """A Talos cluster approves whatever name a token of its group asks for. On a rented machine of lane kubelet the token asks for its own
    name and no other."""
    return bootstrap_tokens.OWN_GROUP if lane is Lane.KUBELET else bootstrap_tokens.GROUPS


def _forget_lost_keys(context: Context, claim: Claim, mesh: Mesh) -> None:
    """Keys of a run that was killed before it could note them. Those of rented machines are found by their name once the claim is
    gone; the name of an own machine does not tell whose it is, so its keys have to go now, while its claim is ours."""
    if CAPABILITIES[claim.cloud].rented:
        return
    for key in context.once("keys before the launch", mesh.keys):
        if key.description == description_of(claim.name) and not key.invalid:
            mesh.delete_key(key.id)


# ---- bootstrap tokens with their place on our list: on it before they are made, off it once they are deleted (L-12)


def make_token(context: Context, machine: str, groups: str) -> Token:
    """A fresh one. It is noted first: a run that is killed in between leaves a note too many, never a token that is unknown."""
    context.lock.renew_if_due()  # the list is another run's once the lock is lost
    while True:
        token = context.records.tokens.draw(machine)
        if bootstrap_tokens.put(context.kube, token, groups):
            return token
        context.records.tokens.forget(token.id)  # the id is the token of another owner: it must never be taken for ours


def take_back(context: Context, token_id: str) -> bool:
    """Make one worthless now. False when it was gone already."""
    existed = bootstrap_tokens.delete(context.kube, token_id)
    context.records.tokens.forget(token_id)
    return existed


def take_back_all(context: Context, claim: Claim) -> None:
    """The one that the claim knows, and those of a killed run that were made for its machine and never reached the claim."""
    lost = context.records.tokens.made_for(claim.name)
    for token_id in dict.fromkeys((*((claim.token_id,) if claim.token_id else ()), *lost)):
        take_back(context, token_id)


# ---- the image of Talos that the machine boots where its class names none: made before a launch where imagePolicy says so, and looked up again
# for the create call

_LONG = timedelta(seconds=60)  # after which what was observed before is too old to decide by


def policy_of(node_class: NodeClass, cloud: str, lane: Lane) -> ImagePolicy | None:
    """When the image of such a machine is made; None where the class names it, or the machine boots none of the account."""
    entry, settings = ENTRIES.get(cloud), node_class.settings_of(cloud)
    if entry is None or lane is not Lane.TALOS or not entry.image_setting or settings.get(entry.image_setting):
        return None
    policy = settings.get("imagePolicy")
    return ImagePolicy(policy) if policy else None


def boot_settings(context: Context, node_class: NodeClass, cloud: str, lane: Lane) -> dict[str, str]:
    """The setting that names the image for a create call; empty where the class names it itself. NeverReady when the account has none."""
    if policy_of(node_class, cloud, lane) is None:
        return {}
    order = _order(context, node_class, cloud, ImagePolicy.NEVER)
    image, _made = context.once(("image to boot", *_key(order)), lambda: image_for(context.task, order))
    return {ENTRIES[cloud].image_setting: t.cast(DiskImage, image).link}


class ImagesMade(t.NamedTuple):
    """What became of the images that planned machines boot. ``held``: why a launch waits for a later run, by the key of its pool;
    ``missing``: why there is none, by class and cloud (L-56); ``waited``: so long that the world has to be looked at anew."""

    held: t.Mapping[str, str]
    missing: t.Mapping[tuple[str, str], str]
    waited: bool


def make_images(context: Context, claims: t.Iterable[Claim], *, writes: bool) -> ImagesMade:
    """Have the images made that these machines boot. A run that a person calls waits for an image; any other run begins it and leaves the
    launch to a later one. Nothing is made, and no failure is remembered, without ``writes``."""
    held: dict[str, str] = {}
    missing: dict[tuple[str, str], str] = {}
    waited, began = False, context.clock.now()
    for claim in claims:
        node_class = context.specs.classes.get(claim.node_class)
        policy = policy_of(node_class, claim.cloud, claim.lane) if node_class else None
        if node_class is None or policy is None or claim.instance_id or claim.pool in held:
            continue
        place = (node_class.name, claim.cloud)
        if place in missing:
            continue
        try:
            waited = _made(context, node_class, claim.cloud, policy, writes=writes) or waited
        except LockLost:
            raise
        except TgpError as error:
            found = _consequence(context, error, policy)
            if found is Consequence.LATER:
                text = f"{claim.cloud} is still making its image of Talos. A later run launches the machines."
                held[claim.pool] = f"GPUNodeClass {node_class.name}: {text}"
                continue
            missing[place] = str(error)
            if found is Consequence.BACKED_OFF and writes:
                _back_off(context, node_class, claim.cloud, error)
    waited = waited or context.clock.now() - began > _LONG
    return ImagesMade(held, missing, waited)


def _consequence(context: Context, error: TgpError, policy: ImagePolicy) -> Consequence:
    begun = error.details.get("begun")
    waits = context.settings.mode == "provision"
    return consequence(error, policy, waits=waits, begun=from_text(begun) if begun else None, now=context.clock.now())


def _back_off(context: Context, node_class: NodeClass, cloud: str, error: TgpError) -> None:
    """Remember the failure (L-14). That it cannot be noted costs another try only."""
    try:
        context.records.block(launch_backoff.key_of_image(node_class, cloud), "image", why=error.message)
    except ApiError as failure:
        context.warn(
            f"{cloud}: the next run tries to make the image of Talos again, because its failure could not be noted: {failure}"
        )


def _went_well(context: Context, node_class: NodeClass, cloud: str) -> None:
    """A success ends the doubling of the block."""
    try:
        context.records.succeeded(launch_backoff.key_of_image(node_class, cloud))
    except ApiError as error:
        context.warn(f"{cloud}: the block list could not be written: {error}")


def _made(context: Context, node_class: NodeClass, cloud: str, policy: ImagePolicy, *, writes: bool) -> bool:
    """Whether the image was made or waited for now. Once in a run, so that Always makes one, and so that what failed for one class is not tried
    for another one that boots the same image."""
    waits = context.settings.mode == "provision"
    if policy is ImagePolicy.ALWAYS and not waits:  # a run that does not wait would begin another one each time, and never launch
        policy = ImagePolicy.IF_MISSING
    order = _order(context, node_class, cloud, policy, wait=LONGEST_IMPORT if waits else 0, dry=not writes)
    order = dataclasses.replace(order, tries=2 if waits else 1)
    news: list[bool] = []

    def make() -> TgpError | None:
        try:
            _image, changed = image_for(context.task, order)
        except LockLost:
            raise
        except TgpError as error:
            return error
        news.append(changed)
        return None

    failure = context.once(("image made", *_key(order)), make)
    if failure is not None:
        raise failure
    if writes:
        _went_well(context, node_class, cloud)
    if news == [True] and not writes:
        name = order.wanted.name(dots=True)
        context.task.progress(
            f"  {cloud}: an image {name} would be made or waited for before the launch (imagePolicy {policy.value})"
        )
    return writes and news == [True]


def image_sentence(context: Context, node_class: NodeClass, cloud: str, policy: ImagePolicy) -> tuple[str, bool]:
    """For validate.yml: what the account has of the class's image, and whether it is there. NeverReady when it is missing for good."""
    order = _order(context, node_class, cloud, policy if policy is ImagePolicy.NEVER else ImagePolicy.IF_MISSING, dry=True)
    image, missing = image_for(context.task, order)
    if image is not None and not missing:
        return f"{image.name} is there", True
    state = "is being made" if image is not None else "is missing; the first run that launches makes it"
    return f"{order.wanted.name(dots=True)} {state} (imagePolicy {policy.value})", False


def _order(
    context: Context, node_class: NodeClass, cloud: str, policy: ImagePolicy, *, wait: int = 0, dry: bool = False
) -> ImageOrder:
    """InvalidInput when nothing tells what is in the image."""
    choice = next((one for one in node_class.clouds if one.cloud == cloud), CloudChoice(cloud))
    default = cluster_facts(context).talos_version
    release = image_of(node_class.talos_schematic, node_class.talos_image, default).release(default)
    number = ordered_schematic(node_class.talos_schematic, node_class.talos_image, release)
    if not number:
        raise InvalidInput(
            "What is in the image of its machines is not known, because talosConfig names no schematic.",
            remedy="Add talosConfig.schematic, or an installer of the Image Factory as talosConfig.image.",
        )
    wanted = WantedImage(number, whole_version(release), cluster=context.cluster_id)
    bucket = str(choice.settings.get("imageBucket") or "")
    return ImageOrder(
        cloud,
        wanted,
        policy,
        choice,
        cloud_credential(context.task, context.kube, cloud, choice),
        timeout=wait,
        bucket=bucket,
        content=node_class.talos_schematic,
        remedy=f"Make it: {_command(cloud, wanted, bucket)}",
        dry=dry or context.task.check_mode,
        pulse=context.lock.renew_if_due,
    )


def _command(cloud: str, wanted: WantedImage, bucket: str) -> str:
    """The command line that makes the image."""
    given = {"tgp_provider": cloud, "tgp_schematic_id": wanted.schematic, "tgp_talos_version": wanted.version}
    given |= {"tgp_image_cluster_id": wanted.cluster}
    if "imageBucket" in ENTRIES[cloud].settings:
        given |= {"tgp_image_bucket": bucket or "BUCKET"}
    return "ansible-playbook tgp.gpu.images " + " ".join(f"-e {name}={value}" for name, value in given.items())


def _key(order: ImageOrder) -> tuple[t.Hashable, ...]:
    return order.provider, order.wanted, str(order.choice.settings.get("project") or "")
