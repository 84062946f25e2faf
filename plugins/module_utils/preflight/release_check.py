# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the release tables are recent enough for this cluster: what its nodes, its API server, the classes and the Image Factory name is
compared with their rows (B-19). Warnings only: what a release that is not known would break is refused where it is met."""

from __future__ import annotations

import re
import typing as t

from ..core.errors import TgpError
from ..model import Node, NodeClass
from ..observe.context import Context
from ..providers.base import CloudCheck
from ..talos.images.extensions import Extension
from ..talos.images.nvidia import image_of
from ..talos.releases.staleness import Product, SeenDriver, SeenVersion, seen_driver, sentence, warnings
from ..talos.releases.tables import tables
from ..talos.spec import DEFAULT_TALOS

_TALOS = re.compile(r"Talos \(v?([^)]+)\)")
_EXTENSION = "extensions.talos.dev/"

Seen = SeenVersion | SeenDriver


def check_releases(
    context: Context, nodes: t.Sequence[Node], server: str, official: t.Callable[[str], t.Sequence[Extension]]
) -> CloudCheck:
    """``server``: version of the API server. ``official``: the extensions of a Talos release by the Image Factory, asked for classes with a
    schematic only."""
    found: list[Seen] = [SeenVersion(Product.KUBERNETES, server, "the API server")]
    for node in nodes:
        found += of_node(node)
    for node_class in context.specs.classes.values():
        found += _of_class(context, node_class, official)
    return CloudCheck(sentence(tables()), warnings(tables(), found, context.clock.now().date()))


def of_node(node: Node) -> list[Seen]:
    """The versions that a Node tells: its kubelet, its Talos, and its driver by the labels that Talos gives it for its extensions."""
    where = f"node {node.name}"
    found: list[Seen] = [SeenVersion(Product.KUBERNETES, node.kubelet_version, where)]
    match = _TALOS.fullmatch(node.os_image)
    if match is None:
        return found
    found.append(SeenVersion(Product.TALOS, match[1], where))
    for label, version in node.labels.items():
        if label.startswith(_EXTENSION):
            driver = seen_driver(label.removeprefix(_EXTENSION), version, match[1], where)
            found += [driver] if driver else []
    return found


def _of_class(context: Context, node_class: NodeClass, official: t.Callable[[str], t.Sequence[Extension]]) -> list[Seen]:
    """The Talos release that a class names, and the drivers that the factory puts into its image."""
    where = f"GPUNodeClass {node_class.name}"
    default = context.task.params.get("talos_version") or DEFAULT_TALOS
    try:
        image = image_of(node_class.talos_schematic, node_class.talos_image, default)
    except TgpError:  # the check of its template has it
        return []
    release = image.release(default)
    found: list[Seen] = [SeenVersion(Product.TALOS, release, where)]
    if not image.extensions:
        return found
    try:
        versions = {extension.name: extension.version for extension in official(release)}
    except TgpError:  # the check of its template has it
        return found
    sightings = (seen_driver(name, versions.get(name, ""), release, where) for name in image.extensions)
    return [*found, *(one for one in sightings if one)]
