# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network boot: an iPXE script that starts Talos from the Image Factory and tells it where its configuration is."""

from __future__ import annotations

import re
import typing as t
from urllib.parse import urlsplit

from ...core.errors import BadShape, InvalidInput
from ...core.http import Api, Retry
from ...core.task import Task
from ...talos.images.factory import Images
from .kernel_arguments import joined

_KERNEL = re.compile(r"^kernel (\S+) (.+)$", re.MULTILINE)


def chained(images: Images) -> str:
    """The factory's own script, fetched at each boot: nothing is added to what stands in the schematic."""
    return f"#!ipxe\nchain --replace --autofree {images.pxe}\n"


def own_script(published: str, more: t.Sequence[str]) -> str:
    """The factory's script ``published`` with our arguments added to its command line (which holds those of the schematic, too)."""
    lines = _KERNEL.findall(published)
    if not published.startswith("#!ipxe") or len(lines) != 1 or "talos.platform=" not in lines[0][1]:
        raise BadShape(
            "The Image Factory's iPXE script has no command line that could be added to.",
            remedy="Scripts for Secure Boot have none: put the arguments into the schematic and leave them out here.",
            service="image factory",
        )
    kernel, line = lines[0]
    # a function, so that nothing in the line is read as a reference to the pattern
    return _KERNEL.sub(lambda _found: f"kernel {kernel} {joined(line, more)}", published)


def published_script(task: Task, images: Images) -> str:
    """The factory's script. Raises an ApiError; asking makes no image."""
    parts = urlsplit(images.pxe)
    root = f"{parts.scheme}://{parts.netloc}"
    api = Api("image factory", root, transport=task.transport(root), retry=Retry(tries=3), clock=task.clock)
    try:
        return api.call("GET", parts.path).text
    finally:
        api.close()


def refuse_secure_boot(more: t.Sequence[str]) -> None:
    """A signed image carries its command line inside."""
    if more:
        raise InvalidInput(
            "With Secure Boot nothing can be added to the command line, which is part of the signed image.",
            problems=[f"{one.partition('=')[0]} would be added." for one in more],
            remedy="Put the arguments into the schematic (kernel_args of tgp.gpu.talos_schematic).",
        )
