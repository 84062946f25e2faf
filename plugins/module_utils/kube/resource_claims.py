# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what pods ask of DRA drivers and what drivers publish (resource.k8s.io/v1): one list for each kind."""

from __future__ import annotations

import re
import typing as t

from ..core.errors import NotFound
from ..model.devices import (
    GPU_DRIVER,
    Amount,
    ClaimChoice,
    ClaimConstraint,
    ClaimRequest,
    DeviceClass,
    DeviceProfile,
    DynamicResources,
    HeldDevice,
    PodClaim,
    ResourceClaim,
    ResourceSlice,
    SemVer,
    SliceDevice,
    Value,
)
from ..units.values import whole
from .client import Json, Kube

T = t.TypeVar("T")
GROUP = "resource.k8s.io"
VERSION = "v1"
_BASE = f"/apis/{GROUP}/{VERSION}"
CLASSES, CLAIMS, SLICES = f"{_BASE}/deviceclasses", f"{_BASE}/resourceclaims", f"{_BASE}/resourceslices"
_SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_NOTHING: t.Mapping[str, t.Any] = {}
_KEEPS_OFF = ("NoSchedule", "NoExecute")


def dynamic_resources(kube: Kube) -> DynamicResources:
    """Three lists. A cluster that does not serve the version has none of it; anything else that goes wrong raises."""
    try:
        classes = _collect(kube, CLASSES, _class)
    except NotFound:
        if is_served(kube, GROUP, VERSION):
            raise
        return DynamicResources(served=False)
    return DynamicResources(tuple(classes), tuple(_collect(kube, CLAIMS, _claim)), tuple(_collect(kube, SLICES, _slice)))


def device_slices(kube: Kube) -> DynamicResources:
    """What drivers publish, without what is asked for: one list."""
    try:
        return DynamicResources(slices=tuple(_collect(kube, SLICES, _slice)))
    except NotFound:
        if is_served(kube, GROUP, VERSION):
            raise
        return DynamicResources(served=False)


def is_served(kube: Kube, group: str, version: str) -> bool:
    """What the API server itself says: a page "not found" of something in between proves nothing."""
    groups = kube.get("/apis").get("groups") or ()
    versions = [one for each in groups if each.get("name") == group for one in each.get("versions") or ()]
    return any(one.get("version") == version for one in versions)


def _collect(kube: Kube, path: str, reduce: t.Callable[[Json], T]) -> list[T]:
    def strict(raw: Json) -> T:
        try:
            return reduce(raw)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            name = (raw.get("metadata") or {}).get("name", "?") if isinstance(raw, dict) else "?"
            raise kube.api.bad_shape(f"GET {path}", f"{name} has an odd field: {error!r}") from error

    return kube.collect(path, strict)[0]


def claims_of_pod(spec: t.Mapping[str, t.Any], status: t.Mapping[str, t.Any]) -> tuple[PodClaim, ...]:
    """The claims of a raw pod: those it names, those generated for it, and that of its extended resources."""
    generated = {entry["name"]: entry.get("resourceClaimName") or "" for entry in status.get("resourceClaimStatuses") or ()}
    found = [
        PodClaim(entry.get("resourceClaimName") or generated.get(entry["name"], ""), entry.get("resourceClaimTemplateName") or "")
        for entry in spec.get("resourceClaims") or ()
    ]
    extended = (status.get("extendedResourceClaimStatus") or _NOTHING).get("resourceClaimName")
    return (*found, PodClaim(extended, extended=True)) if extended else tuple(found)


def _class(raw: Json) -> DeviceClass:
    spec = raw.get("spec") or _NOTHING
    selectors, problem = _selectors(spec.get("selectors"))
    return DeviceClass(raw["metadata"]["name"], selectors, spec.get("extendedResourceName") or "", problem)


def _selectors(raw: t.Iterable[Json] | None) -> tuple[tuple[str, ...], str]:
    """The expressions, and what is not one."""
    entries = list(raw or ())
    odd = next((next(iter(entry), "nothing") for entry in entries if "cel" not in entry), "")
    return tuple(entry["cel"]["expression"] for entry in entries if "cel" in entry), f"a selector of kind {odd}" if odd else ""


def _claim(raw: Json) -> ResourceClaim:
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or _NOTHING
    devices, allocation = spec.get("devices") or _NOTHING, status.get("allocation")
    results = ((allocation or _NOTHING).get("devices") or _NOTHING).get("results") or ()
    return ResourceClaim(
        namespace=meta["namespace"],
        name=meta["name"],
        requests=tuple(_request(entry) for entry in devices.get("requests") or ()),
        constraints=tuple(_constraint(entry) for entry in devices.get("constraints") or ()),
        allocated=allocation is not None,
        held=tuple(
            HeldDevice(entry["driver"], entry["pool"], entry["device"], bool(entry.get("adminAccess"))) for entry in results
        ),
        node=_pinned_to(allocation or _NOTHING),
        reserved=bool(status.get("reservedFor")),
    )


def _pinned_to(allocation: t.Mapping[str, t.Any]) -> str:
    terms = (allocation.get("nodeSelector") or _NOTHING).get("nodeSelectorTerms") or ()
    fields = [entry for term in terms for entry in term.get("matchFields") or ()]
    return next((entry["values"][0] for entry in fields if entry["key"] == "metadata.name"), "")


def _request(raw: Json) -> ClaimRequest:
    if raw.get("firstAvailable"):
        return ClaimRequest(raw["name"], tuple(_choice(entry) for entry in raw["firstAvailable"]))
    return ClaimRequest(raw["name"], (_choice(raw["exactly"]),))


def _choice(raw: Json) -> ClaimChoice:
    selectors, problem = _selectors(raw.get("selectors"))
    mode = raw.get("allocationMode") or "ExactCount"
    if mode not in ("ExactCount", "All"):
        problem = problem or f"allocationMode {mode}"
    if (raw.get("capacity") or _NOTHING).get("requests"):
        problem = problem or "capacity.requests"
    count = 0 if mode == "All" else int(raw.get("count") or 1)
    return ClaimChoice(raw["deviceClassName"], count, selectors, bool(raw.get("adminAccess")), problem)


def _constraint(raw: Json) -> ClaimConstraint:
    return ClaimConstraint(tuple(raw.get("requests") or ()), raw.get("matchAttribute") or "", raw.get("distinctAttribute") or "")


def _slice(raw: Json) -> ResourceSlice:
    spec = raw["spec"]
    pool, driver = spec["pool"], spec["driver"]
    devices = tuple(_device(entry, driver) for entry in spec.get("devices") or ()) if driver == GPU_DRIVER else ()
    return ResourceSlice(
        driver, pool["name"], int(pool["generation"]), int(pool["resourceSliceCount"]), spec.get("nodeName") or "", devices
    )


def _device(raw: Json, driver: str) -> SliceDevice:
    attributes = tuple(sorted((_full(name, driver), _value(entry)) for name, entry in (raw.get("attributes") or _NOTHING).items()))
    capacity = tuple(
        sorted(
            (_full(name, driver), Amount(whole(str(entry["value"])))) for name, entry in (raw.get("capacity") or _NOTHING).items()
        )
    )
    tainted = any(taint.get("effect") in _KEEPS_OFF for taint in raw.get("taints") or ())
    return SliceDevice(raw["name"], DeviceProfile(driver, attributes, capacity), tainted)


def _full(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def _value(raw: Json) -> Value:
    """Of an attribute: exactly one of bool, int, string and version. A version that is not three numbers is kept as text, which no
    comparison of versions takes."""
    for kind in ("bool", "int", "string"):
        if kind in raw:
            return t.cast(Value, raw[kind])
    match = _SEMVER.fullmatch(raw["version"])
    return SemVer(*map(int, match.groups())) if match else str(raw["version"])
