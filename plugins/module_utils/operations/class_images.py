# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The images of Talos that machines of a class boot where the class names none: made before a launch where its imagePolicy says so, and looked
up again for the create call."""

from __future__ import annotations

import typing as t

from ..core.errors import InvalidInput, LockLost, TgpError, TimedOut
from ..model import Claim, CloudChoice, Lane, NodeClass
from ..observe.clients import cloud_credential
from ..observe.context import Context
from ..observe.gather import cluster_facts
from ..planner.claims.record import class_of
from ..providers.disk_images import DiskImage, ImagePolicy, WantedImage
from ..providers.registry import ENTRIES
from ..talos.images.nvidia import image_of, ordered_schematic
from ..talos.images.schematics import whole_version
from .talos_image import ImageOrder, image_for

_WAIT = 3600  # seconds for which a run that a person calls waits for an image


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


def make_images(context: Context, claims: t.Iterable[Claim], *, writes: bool) -> tuple[dict[str, str], bool]:
    """Why the image of a pool's machines is missing, by the pool's key; and whether an image was waited for, so that the world has to be looked
    at anew. A run that a person calls waits for an image; any other run begins it and leaves the launch to a later one. Nothing is made without
    ``writes``."""
    faults: dict[str, str] = {}
    waited = False
    for claim in claims:
        node_class = class_of(claim, context.specs)
        policy = policy_of(node_class, claim.cloud, claim.lane)
        if policy is None or claim.instance_id or claim.pool in faults:
            continue
        try:
            waited = _made(context, node_class, claim.cloud, policy, writes=writes) or waited
        except LockLost:
            raise
        except TgpError as error:
            begun = isinstance(error, TimedOut) and context.settings.mode != "provision"
            text = f"{claim.cloud} is still making its image of Talos. A later run launches the machines." if begun else str(error)
            faults[claim.pool] = f"GPUNodeClass {node_class.name}: {text}"
    return faults, waited


def _made(context: Context, node_class: NodeClass, cloud: str, policy: ImagePolicy, *, writes: bool) -> bool:
    """Whether the image was made or waited for now. Once in a run, so that Always makes one."""
    waits = context.settings.mode == "provision"
    if policy is ImagePolicy.ALWAYS and not waits:  # a run that does not wait would begin another one each time, and never launch
        policy = ImagePolicy.IF_MISSING
    order = _order(context, node_class, cloud, policy, wait=_WAIT if waits else 0, dry=not writes)
    news: list[bool] = []

    def make() -> DiskImage | None:
        image, changed = image_for(context.task, order)
        news.append(changed)
        return image

    context.once(("image made", *_key(order)), make)
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
