# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module ``talos_schematic`` does: content as data → checked, numbered, handed in, and where its images are."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ...core.errors import InvalidInput
from ...core.task import Task
from ..releases.tables import OLDEST, minor
from ..spec import DEFAULT_TALOS, plain
from ..template import parse
from ..validation.secret_scan import refuse_secrets
from .extensions import Extension, WantedExtension, disagreements, missing, spec
from .factory import PUBLIC, ImageFactory, computed, images, open_factory
from .nvidia import Driver, architecture, driver_for, mismatches, needs_fabric_manager
from .schematic import canonical_text

MESH = {"tailscale": "siderolabs/tailscale"}


def schematic_of(task: Task) -> dict[str, t.Any]:
    """One call of the module. InvalidInput lists everything that is wrong with the content."""
    params = task.params
    version = whole_version(params["talos_version"] or DEFAULT_TALOS)
    _architecture(params)
    factory = None if params["offline"] else open_factory(task)
    try:
        if params["schematic_id"]:
            return _existing(task, factory, version)
        return _wanted(task, factory, version)
    finally:
        if factory is not None:
            factory.close()


def content(params: t.Mapping[str, t.Any], version: str) -> tuple[dict[str, t.Any], list[WantedExtension]]:
    """The schematic that the options describe, and its extensions with the versions they were asked in."""
    base: dict[str, t.Any] = dict(params["schematic"] or {})
    refuse_secrets(base)
    canonical_text(base, str)  # its form is looked at before its parts are
    customization: dict[str, t.Any] = dict(base.get("customization") or {})
    systems: dict[str, t.Any] = dict(customization.get("systemExtensions") or {})
    listed = systems.get("officialExtensions") or []
    if not isinstance(listed, list):
        raise InvalidInput("schematic.customization.systemExtensions.officialExtensions must be a list of names.")
    specs = [spec(str(entry)) for entry in (*listed, *params["extensions"])]
    driver = _driver(params, version)
    if driver is not None:
        fabric = params["fabric_manager"]
        if fabric is None:
            fabric = any(needs_fabric_manager(model, params["gpu_count"]) for model in params["gpu_models"])
        specs += [WantedExtension(name) for name in driver.extensions(fabric_manager=fabric)]
    if params["mesh"] in MESH:
        specs.append(WantedExtension(MESH[params["mesh"]]))
    # the order counts for the id, so there is one order only
    names = sorted({extension.name for extension in specs})
    if names:
        customization["systemExtensions"] = {**systems, "officialExtensions": names}
    arguments = [*(customization.get("extraKernelArgs") or []), *params["kernel_args"]]
    if arguments:
        customization["extraKernelArgs"] = arguments
    meta = [*(customization.get("meta") or []), *params["meta"]]
    if meta:
        customization["meta"] = meta
    if params["bootloader"]:
        customization["bootloader"] = params["bootloader"]
    overlay = {key: value for key, value in (params["overlay"] or {}).items() if value}
    made = {**base, "customization": customization, **({"overlay": overlay} if overlay else {})}
    return made, specs


def _wanted(task: Task, factory: ImageFactory | None, version: str) -> dict[str, t.Any]:
    params = task.params
    schematic, specs = content(params, version)
    refuse_secrets(schematic)
    number = computed(schematic)  # refuses unknown fields
    names = [extension.name for extension in specs]
    problems = [*disagreements(names), *mismatches(names, params["gpu_models"], version)]
    official: tuple[Extension, ...] = ()
    if factory is not None:
        official = factory.extensions(version)
        problems += missing(specs, official, version)
    if problems:
        raise InvalidInput("This schematic gives no image for these nodes.", problems=problems)
    if factory is None:
        if number is None:
            raise InvalidInput(
                "The id of this schematic cannot be computed here, because a value in it may have to be quoted.",
                remedy="Let the Image Factory number it: offline: false.",
            )
        task.warn("Nobody was asked whether Talos has these extensions: offline is true.")
        return _result(params, number, canonical_text(schematic), version, official, changed=False)
    text = factory.known(number) if number is not None else None
    changed = text is None
    if changed and not task.check_mode:
        number, text = factory.register(schematic)
    if changed and number is None:
        task.warn("The id is not known before the Image Factory is asked for it, which check mode does not do.")
    result = _result(
        params, number or "", text or (canonical_text(schematic) if number else ""), version, official, changed=changed
    )
    if task.diff_mode:
        result["diff"] = {"before": "" if changed else result["schematic"], "after": result["schematic"]}
    return result


def _existing(task: Task, factory: ImageFactory | None, version: str) -> dict[str, t.Any]:
    """A schematic that the user made: does it exist, and does it fit the release and the GPUs?"""
    params = task.params
    number = params["schematic_id"]
    extra = [name for name in ("extensions", "kernel_args", "meta") if params[name]]
    if extra:
        raise InvalidInput(
            f"{task.called('schematic_id')} names a schematic that exists; {extra[0]} cannot be added to it. Give one of the two."
        )
    if not re.fullmatch(r"[0-9a-f]{64}", number):
        raise InvalidInput(f"{task.called('schematic_id')} {number!r} is not 64 hex digits.")
    if factory is None:
        raise InvalidInput(
            f"{task.called('schematic_id')}: what stands in a schematic only its factory knows; offline must be false."
        )
    text = factory.known(number)
    if text is None:
        raise InvalidInput(
            f"The Image Factory {factory.url} knows no schematic {number}.",
            remedy="Hand its content in (extensions, kernel_args …); the same content gets the same id.",
        )
    (schematic,) = parse(text, f"Schematic {number}")
    customization = schematic.get("customization") or {}
    names = (customization.get("systemExtensions") or {}).get("officialExtensions") or []
    official = factory.extensions(version)
    problems = [
        *missing([spec(name) for name in names], official, version),
        *disagreements(names),
        *mismatches(names, params["gpu_models"], version),
    ]
    if params["mesh"] in MESH and MESH[params["mesh"]] not in names:
        problems.append(f"It has no {MESH[params['mesh']]}, so its nodes could not enter the mesh.")
    if problems:
        raise InvalidInput(f"Schematic {number} gives no image for these nodes.", problems=problems)
    return _result(params, number, text, version, official, changed=False)


def _result(
    params: t.Mapping[str, t.Any], number: str, text: str, version: str, official: t.Sequence[Extension], *, changed: bool
) -> dict[str, t.Any]:
    listed = (parse(text, "The schematic")[0].get("customization") or {}) if text else {}
    names = (listed.get("systemExtensions") or {}).get("officialExtensions") or []
    versions = {extension.name: extension.version for extension in official}
    url = (params["image_factory_url"] or PUBLIC).rstrip("/")
    links = None
    if number:
        links = images(number, version, url=url, platform=params["platform"], arch=params["arch"], secureboot=params["secureboot"])
    return {
        "changed": changed,
        "id": number,
        "schematic": text,
        "talos_version": version,
        "extensions": [{"name": name, "version": versions.get(name, "")} for name in names],
        "images": dataclasses.asdict(links) if links else {},
    }


def whole_version(text: str) -> str:
    """A Talos release without v. InvalidInput for half of one, and for one that is too old."""
    version = minor(text)
    if version is None or plain(text).count(".") < 2:
        raise InvalidInput(f"The Talos release {text!r} must be a whole version, for example {DEFAULT_TALOS}.")
    if version < OLDEST:
        raise InvalidInput(f"Talos {text} is not supported: 1.{OLDEST[1]} is the oldest.")
    return plain(text)


def _architecture(params: t.Mapping[str, t.Any]) -> None:
    wanted = architecture(params["gpu_models"])
    if wanted is not None and wanted != params["arch"]:
        raise InvalidInput(f"{', '.join(params['gpu_models'])} sit on boards with an Arm CPU: arch must be {wanted}.")


def _driver(params: t.Mapping[str, t.Any], version: str) -> Driver | None:
    if params["gpu_models"]:
        return driver_for(params["gpu_models"], version, "" if params["driver_track"] == "auto" else params["driver_track"])
    return None
