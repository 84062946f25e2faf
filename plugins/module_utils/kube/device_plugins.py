# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DaemonSets of the cluster that advertise GPUs, known by the images and names of the usual device plugins and DRA drivers."""

from __future__ import annotations

from ..core.errors import TgpError
from ..model import DevicePlugin, DevicePlugins
from .client import Json, Kube
from .placement import placement_of

PATH = "/apis/apps/v1/daemonsets"
_VENDORS = ("nvidia", "k8s-device-plugin", "gpu", "amd", "rocm")


def device_plugins(kube: Kube) -> DevicePlugins:
    """What was found, or why the list could not be read."""
    try:
        return DevicePlugins(tuple(kube.collect(PATH, _reduce)[0]))
    except (TgpError, KeyError, TypeError, AttributeError) as error:
        return DevicePlugins(problem=str(error) or repr(error))


def _reduce(raw: Json) -> DevicePlugin | None:
    meta, spec = raw["metadata"], raw["spec"]["template"]["spec"]
    name = meta["name"]
    images = " ".join(str(one.get("image") or "") for one in spec.get("containers") or ())
    text = f"{name} {images}"
    dra = "dra-driver" in text
    plugin = "device-plugin" in text and "feature-discovery" not in name and "mps" not in name
    if not (dra or plugin) or not any(word in text for word in _VENDORS):
        return None
    return DevicePlugin(meta["namespace"], name, placement_of(spec, meta["namespace"]), dra)
