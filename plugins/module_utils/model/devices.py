# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of DRA drivers (resource.k8s.io/v1): what drivers publish in ResourceSlices, what claims ask for, and what they hold.

Names of attributes and capacities are always full: ``gpu.nvidia.com/productName``.
"""

from __future__ import annotations

import dataclasses
import typing as t

GPU_DRIVER = "gpu.nvidia.com"
"""NVIDIA's DRA driver for GPUs."""


class SemVer(t.NamedTuple):
    """A version as an attribute has it."""

    major: int
    minor: int
    patch: int


class Amount(t.NamedTuple):
    """A quantity as a capacity has it, in its own unit (memory: bytes)."""

    value: int


Value = bool | int | str | SemVer | Amount


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceProfile:
    """A device as the selectors of requests see it. ``planned``: the machine does not exist yet, so attributes of the driver that are not
    listed have values that are unknown."""

    driver: str
    attributes: tuple[tuple[str, Value], ...] = ()
    capacity: tuple[tuple[str, Amount], ...] = ()
    planned: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceChoice:
    """What satisfies a request: ``count`` devices (0 = all of a node, at least one) that meet every selector."""

    count: int
    selectors: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a pod's claims. Of ``choices`` the first that a node can serve is taken."""

    choices: tuple[DeviceChoice, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceRoom:
    """The GPUs that a DRA driver offers on a machine: what kinds of them there are (of a planned machine: may be), how many there are,
    usable or not, and how many of the usable ones are allocated to no pod that still runs."""

    profiles: tuple[DeviceProfile, ...]
    total: int
    held: int = 0


class PodClaim(t.NamedTuple):
    """A ResourceClaim of a pod. An empty ``claim`` is still to be generated from ``template``. ``extended``: the scheduler made it for an
    extended resource that the pod asks for."""

    claim: str
    template: str = ""
    extended: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimChoice:
    """One way to satisfy a request of a claim, as it is written there. ``problem``: what in it cannot be judged."""

    device_class: str
    count: int
    selectors: tuple[str, ...] = ()
    admin: bool = False
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimRequest:
    """``choices``: exactly one, or those of firstAvailable in their order."""

    name: str
    choices: tuple[ClaimChoice, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimConstraint:
    """What devices of ``requests`` (empty = of all) have in common (``match``) or not (``distinct``): the name of an attribute."""

    requests: tuple[str, ...]
    match: str = ""
    distinct: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device that is allocated to a claim."""

    driver: str
    pool: str
    name: str
    admin: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceClaim:
    """``allocated``: it has its devices. ``node``: the only one that it can be used on, empty = not pinned. ``reserved``: some consumer is
    named in its status."""

    namespace: str
    name: str
    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[ClaimConstraint, ...] = ()
    allocated: bool = False
    held: tuple[HeldDevice, ...] = ()
    node: str = ""
    reserved: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceClass:
    """``extended``: the extended resource by which pods get devices of the class, too. ``problem``: what in it cannot be judged."""

    name: str
    selectors: tuple[str, ...] = ()
    extended: str = ""
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SliceDevice:
    """A device of a ResourceSlice. ``tainted``: nothing new is allocated of it."""

    name: str
    profile: DeviceProfile
    tainted: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceSlice:
    """``count``: how many slices its pool has at this ``generation``. ``node`` is empty for devices that belong to no single node."""

    driver: str
    pool: str
    generation: int
    count: int
    node: str
    devices: tuple[SliceDevice, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DynamicResources:
    """All of it in one cluster. ``served`` False: the cluster does not serve resource.k8s.io/v1."""

    classes: tuple[DeviceClass, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    served: bool = True

    @property
    def extended(self) -> frozenset[str]:
        """Extended resources that DRA drivers serve."""
        return frozenset(entry.extended for entry in self.classes if entry.extended)
