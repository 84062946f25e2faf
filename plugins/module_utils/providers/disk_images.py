# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of Talos in an account of a cloud: which one is wanted, which one is there, and which ones may go. Decided from what was read; the
calls are in the clouds' folders.

An image is ours by its name and, where a cloud has labels, by them, too. Both say what it is made of and for which cluster, so that it is found
again after a call whose answer was lost, and nothing has to be remembered to find it. Any cluster may boot it; only its own removes it.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ..core import errors

FAMILY = "tgp-talos"
_SHORT = 12  # digits of a schematic's id in a name
_NAME = re.compile(
    rf"{FAMILY}-v(?P<version>\d+[.-]\d+[.-]\d+(?:-[a-z]+[.-]\d+)?)-(?P<schematic>[0-9a-f]{{{_SHORT}}})(?:-(?P<arch>arm64))?"
    r"(?:-c(?P<cluster>[0-9a-f]{8}))?(?:-(?P<serial>[2-9]|[1-9]\d{1,3}))?"
)
_RELEASE = re.compile(r"(\d+)[.-](\d+)[.-](\d+)(?:-([a-z]+)[.-](\d+))?")
_GIGABYTE = 1_000_000_000
_CENT = Decimal("0.0001")
_MONTH = 730 * 3600
LONGEST_IMPORT: t.Final = 3600  # seconds for which a launch waits for an image
_ASKED_AGAIN = (errors.InvalidInput, errors.Unauthorized, errors.RateLimited, errors.Unreachable)


class ImageState(enum.Enum):
    """Of an image of an account."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"
    UNKNOWN = "unknown"


class ImagePolicy(enum.Enum):
    """When an image is made: each time, when there is none, or not at all."""

    ALWAYS = "Always"
    IF_MISSING = "IfMissing"
    NEVER = "Never"


POLICY_SETTING: dict[str, t.Any] = {
    "enum": [policy.value for policy in ImagePolicy],
    "description": "whether a run that launches machines for lane talos first makes the image that the account lacks",
}


@dataclasses.dataclass(frozen=True, slots=True)
class WantedImage:
    """What an image is made of: a schematic (its id), a Talos release without v, and the CPU. ``cluster``: id of the cluster that it is made
    for, empty = of none in particular."""

    schematic: str
    version: str
    arch: str = "amd64"
    cluster: str = ""

    def name(self, serial: int = 1, *, dots: bool = False) -> str:
        """``dots``: the cloud takes them in names. The second and later images of the same content have a number."""
        release = self.version if dots else self.version.replace(".", "-")
        parts = [FAMILY, f"v{release}", self.schematic[:_SHORT], *(["arm64"] if self.arch == "arm64" else [])]
        parts += [f"c{self.cluster}"] if self.cluster else []
        return "-".join([*parts, *([str(serial)] if serial > 1 else [])])


@dataclasses.dataclass(frozen=True, slots=True)
class DiskImage:
    """An image of ours. ``link``: what a class writes to boot it. ``size`` is what is billed, in bytes; None = not known yet."""

    id: str
    name: str
    state: ImageState
    of: WantedImage
    serial: int
    created: datetime | None
    size: int | None
    link: str
    state_word: str = ""

    def is_of(self, wanted: WantedImage) -> bool:
        """Whichever cluster it was made for. Names hold the beginning of a schematic's id only."""
        same = self.of.version == wanted.version and self.of.arch == wanted.arch
        return (
            same
            and wanted.schematic.startswith(self.of.schematic[:_SHORT])
            and self.of.schematic in (wanted.schematic, wanted.schematic[:_SHORT])
        )


def read_name(name: str) -> tuple[WantedImage, int] | None:
    """What an image with this name is made of, and its number; None for a name that is not of ours. The schematic has 12 digits."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    release = _RELEASE.fullmatch(found["version"])
    if release is None:
        return None
    version = ".".join(release.group(1, 2, 3)) + (f"-{release[4]}.{release[5]}" if release[4] else "")
    of = WantedImage(found["schematic"], version, found["arch"] or "amd64", found["cluster"] or "")
    return of, int(found["serial"] or 1)


# ---- which one


class Step(enum.Enum):
    """What is to be done for an image."""

    USE = "use"
    WAIT = "wait"
    MAKE = "make"
    REFUSE = "refuse"


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """``image``: the one that is used or waited for. ``serial``: the number of one that is made. ``why`` of a refusal is a sentence."""

    step: Step
    image: DiskImage | None = None
    serial: int = 1
    why: str = ""


def decide(images: t.Sequence[DiskImage], wanted: WantedImage, policy: ImagePolicy) -> Decision:
    """One that is being made is waited for, whoever began it: a second call would make and bill a second one. An image whose state is not
    understood may be the one that is wanted, so none is made beside it. One of the own cluster goes before those of others."""
    same = sorted(
        (image for image in images if image.is_of(wanted)), key=lambda one: (one.of.cluster == wanted.cluster, *_age_order(one))
    )
    by_state = {state: [image for image in same if image.state is state] for state in ImageState}
    serial = max((image.serial for image in same if image.of.cluster == wanted.cluster), default=0) + 1
    if policy is not ImagePolicy.ALWAYS and by_state[ImageState.READY]:
        return Decision(Step.USE, by_state[ImageState.READY][-1])
    if by_state[ImageState.PENDING] and policy is not ImagePolicy.NEVER:
        return Decision(Step.WAIT, by_state[ImageState.PENDING][-1])
    if policy is ImagePolicy.NEVER:
        return Decision(Step.REFUSE, why="The account has no image that is complete, and the policy Never makes none.")
    if by_state[ImageState.UNKNOWN]:
        odd = by_state[ImageState.UNKNOWN][-1]
        return Decision(
            Step.REFUSE, odd, why=f"The state {odd.state_word!r} of {odd.name} is not understood, so no other image is made."
        )
    return Decision(Step.MAKE, serial=serial)


class Consequence(enum.Enum):
    """What a launch makes of an image that is not there."""

    LATER = "later"  # a later run launches the machines
    LEFT_OUT = "left out"  # this run rents nothing that boots it
    BACKED_OFF = "backed off"  # nor do others for a while


def consequence(error: errors.TgpError, policy: ImagePolicy, *, waits: bool, begun: datetime | None, now: datetime) -> Consequence:
    """What follows from ``error``, which says why there is no image. A run that does not wait leaves the launch to a later one while the
    image is in the making, an hour at most. ``begun``: since when it is made, None = not known. Backed off is what was tried at the provider.
    What a person or a document decides, and what could not be asked, is asked again by the next run."""
    if isinstance(error, errors.TimedOut) and not waits:
        if begun is None:
            return Consequence.LEFT_OUT
        return Consequence.LATER if (now - begun).total_seconds() < LONGEST_IMPORT else Consequence.BACKED_OFF
    if policy is ImagePolicy.NEVER or isinstance(error, _ASKED_AGAIN):
        return Consequence.LEFT_OUT
    return Consequence.BACKED_OFF


def _age_order(image: DiskImage) -> tuple[float, int]:
    return (image.created.timestamp() if image.created else 0.0, image.serial)


# ---- which ones may go


@dataclasses.dataclass(frozen=True, slots=True)
class Retention:
    """``keep``: so many complete images stay, the newest ones; None = all. ``min_age``: seconds before which none goes. ``protected``: names,
    ids and links that stay. ``cluster``: only images with this stamp go, and count; empty = only those without one."""

    keep: int | None = None
    min_age: int = 7 * 86400
    protected: frozenset[str] = frozenset()
    cluster: str = ""


def retained(
    images: t.Sequence[DiskImage], current: DiskImage | None, used: t.Collection[str], rule: Retention, now: datetime
) -> dict[str, str]:
    """By id: why the image is kept; empty for one to remove. ``used``: ids of images that machines of the account were made of."""
    own = (image for image in images if image.state is ImageState.READY and image.of.cluster == rule.cluster)
    complete = sorted(own, key=_age_order, reverse=True)
    newest = {image.id for image in complete[: rule.keep]} if rule.keep is not None else set()
    return {image.id: _stays(image, current, newest, used, rule, now) for image in images}


def _stays(
    image: DiskImage, current: DiskImage | None, newest: t.Container[str], used: t.Container[str], rule: Retention, now: datetime
) -> str:
    if current is not None and image.id == current.id:
        return "is the one that is wanted"
    if rule.keep is None:
        return "no number of images to keep is given"
    if image.of.cluster != rule.cluster:
        return f"belongs to cluster {image.of.cluster}" if image.of.cluster else "belongs to no cluster"
    if image.id in used:
        return "a machine was made of it"
    if {image.id, image.name, image.link} & rule.protected:
        return "is protected"
    if image.state in (ImageState.PENDING, ImageState.UNKNOWN):
        return f"its state is {image.state_word or image.state.value}"
    if image.created is None:
        return "its age is unknown"
    if now - image.created < timedelta(seconds=rule.min_age):
        return "is too young"
    return "is among the newest" if image.id in newest else ""


def month_cost(size: int | None, gigabyte_month: Decimal) -> Decimal | None:
    """Dollars a month; None while the size is not known."""
    return None if size is None else (Decimal(size) / _GIGABYTE * gigabyte_month).quantize(_CENT)


def storage_cost(
    size: int | None, gigabyte_month: Decimal, created: datetime | None, since: datetime | None, until: datetime
) -> Decimal | None:
    """Dollars from ``since`` (None = ever) to ``until``, a month of 730 hours; None while size or age is not known."""
    if size is None or created is None:
        return None
    seconds = max(0.0, (until - (max(created, since) if since else created)).total_seconds())
    return Decimal(size) / _GIGABYTE * gigabyte_month * Decimal(str(seconds)) / _MONTH


# ---- what a cloud does


class Archive(t.Protocol):
    """The file of an image, read in parts: bytes ``first`` to ``last``, both included."""

    size: int

    def read(self, first: int, last: int) -> bytes: ...

    def close(self) -> None: ...


class ImageOrigin(t.NamedTuple):
    """Where images come from. ``address_of``: from where a cloud fetches one itself. ``archive_of``: its file, to be brought into ``bucket``;
    ``source`` is an object that has it already. ``tell`` prints a line."""

    address_of: t.Callable[[WantedImage], str]
    archive_of: t.Callable[[WantedImage], Archive]
    bucket: str
    source: str
    tell: t.Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Begun:
    """An image that is being made. ``operation``: what tells of its failure, where a cloud has such a thing."""

    id: str
    operation: str = ""


class ImageStore(t.Protocol):
    """The images of one account. ``setting``: what a class calls the link to one. ``gigabyte_month``: dollars; ``price_basis`` says where
    that is from. ``dots``: whether a name may have them. ``list_delay``: seconds for which a new image may be missing from the list."""

    platform: str
    setting: str
    dots: bool
    gigabyte_month: Decimal
    price_basis: str
    list_delay: int

    def images(self) -> list[DiskImage]:
        """All of ours. An ApiError when the list is not whole or not understood."""
        ...

    def used(self) -> frozenset[str]:
        """Ids of images that machines and disks of the account were made of."""
        ...

    def begin(self, wanted: WantedImage, serial: int) -> Begun:
        """Have one made; one create call. LostAnswer, ServerError or BadShape when it may be in the making."""
        ...

    def look(self, begun: Begun) -> DiskImage | None:
        """It as it is now; None when it is not there any more. NeverReady when the cloud says why it failed."""
        ...

    def remove(self, image: DiskImage) -> None:
        """Success also when it is gone."""
        ...

    def clean(self, wanted: WantedImage) -> bool:
        """Remove what was only needed to make it. Whether there was something."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...
