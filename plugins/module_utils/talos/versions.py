# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Talos runs which Kubernetes, and version texts as numbers."""

from __future__ import annotations

import re

# Talos minor -> lowest and highest Kubernetes minor its kubelet may have (support matrix of the Talos documentation).
KUBERNETES: dict[tuple[int, int], tuple[int, int]] = {
    (1, 10): (28, 33),
    (1, 11): (29, 34),
    (1, 12): (30, 35),
    (1, 13): (31, 36),
    (1, 14): (32, 37),
}
OLDEST = (1, 10)
DEFAULT_TALOS = "1.13.9"
DEFAULT_KUBERNETES = "1.36.3"

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-+].*)?")


def minor(version: str) -> tuple[int, int] | None:
    """``(major, minor)`` of "v1.13.9" or "1.13", None when it is no version."""
    match = _VERSION.fullmatch(version.strip())
    return (int(match[1]), int(match[2])) if match else None


def plain(version: str) -> str:
    """Without the leading v."""
    return version.strip().removeprefix("v")


def tag_of(image: str) -> str:
    """The tag of an image reference, "" when it has none (a digest does not count)."""
    last = image.partition("@")[0].rsplit("/", 1)[-1]
    return last.partition(":")[2]
