# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of Talos releases and GPUs: each table with the day on which it was compared with its source (B-19).

The rows are data of this collection. A user's file (``observe/release_tables.py``) adds rows and replaces some, for this process.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing as t
from datetime import date

Minor = tuple[int, int]
OF_RELEASES = ("Talos releases and their Kubernetes", "NVIDIA drivers by Talos release")
LTS, PRODUCTION, NEW_FEATURE = "lts", "production", "new-feature"
TRACKS = (PRODUCTION, LTS, NEW_FEATURE)  # as NVIDIA names them; which driver is newer only a release's row tells
OLDEST: Minor = (1, 10)
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-+].*)?")


def minor(version: str) -> Minor | None:
    """``(major, minor)`` of "v1.13.9" or "1.13", None when it is not a version."""
    match = _VERSION.fullmatch(version.strip())
    return (int(match[1]), int(match[2])) if match else None


def text_of(release: Minor) -> str:
    """ "1.13"."""
    return f"{release[0]}.{release[1]}"


@dataclasses.dataclass(frozen=True, slots=True)
class TableOrigin:
    """Where a table comes from: ``as_of`` is the day on which it was compared with ``source``."""

    table: str
    as_of: date
    source: str


@dataclasses.dataclass(frozen=True, slots=True)
class TalosRelease:
    """One minor release of Talos. ``kubernetes``: lowest and highest minor of its kubelet; ``drivers``: branch of NVIDIA's driver by track;
    ``seen``: the patch release that the drivers were read from, a pre-release where there was no final one; ``origin``: the user's file, or
    None for a built-in row."""

    kubernetes: tuple[int, int]
    drivers: t.Mapping[str, int]
    seen: str
    origin: TableOrigin | None = None

    @property
    def is_preview(self) -> bool:
        """Whether the final release may have other drivers."""
        return "-" in self.seen


@dataclasses.dataclass(frozen=True, slots=True)
class ReleaseTables:
    """All rows that count in this process. ``releases`` by minor; ``origins`` of the tables."""

    releases: t.Mapping[Minor, TalosRelease]
    origins: tuple[TableOrigin, ...]

    @property
    def newest(self) -> Minor:
        """The newest minor release of Talos that has a row."""
        return max(self.releases)

    @property
    def newest_kubernetes(self) -> int:
        """The newest minor release of Kubernetes that some release of Talos runs."""
        return max(release.kubernetes[1] for release in self.releases.values())

    def kubernetes(self, release: Minor | None) -> tuple[int, int] | None:
        """Lowest and highest Kubernetes minor of a Talos release; None when it has no row."""
        row = self.releases.get(release) if release else None
        return row.kubernetes if row else None

    def drivers(self, release: Minor | None) -> t.Mapping[str, int]:
        """Driver branch by track; empty when the release has no row."""
        row = self.releases.get(release) if release else None
        return row.drivers if row else {}

    def extended(self, rows: t.Mapping[Minor, TalosRelease], origin: TableOrigin) -> ReleaseTables:
        """These tables with the rows of a file laid over them. The file's day counts for the tables of releases where it is later."""
        origins = tuple(
            dataclasses.replace(own, as_of=origin.as_of, source=origin.source)
            if own.table in OF_RELEASES and origin.as_of > own.as_of
            else own
            for own in self.origins
        )
        return ReleaseTables({**self.releases, **rows}, origins)

    def unknown_release(self, version: str) -> str:
        """What to say where a row is needed and there is none."""
        return (
            f"Talos {version.removeprefix('v')} has no row in the release tables, so its NVIDIA drivers are not known. They go from "
            f"{text_of(min(self.releases))} to {text_of(self.newest)}."
        )


UPGRADE = "Upgrade the collection, or add the row to a file of release_tables (docs/reference/releases.md)."
"""What to do where a table does not know something."""


def _row(kubernetes: tuple[int, int], lts: int, production: int, seen: str, new_feature: int | None = None) -> TalosRelease:
    drivers = {LTS: lts, PRODUCTION: production} | ({NEW_FEATURE: new_feature} if new_feature else {})
    return TalosRelease(kubernetes, types.MappingProxyType(drivers), seen)


BUILT_IN = ReleaseTables(
    releases=types.MappingProxyType({
        (1, 10): _row((28, 33), lts=535, production=570, seen="1.10.9"),
        (1, 11): _row((29, 34), lts=535, production=570, seen="1.11.6"),
        (1, 12): _row((30, 35), lts=580, production=570, seen="1.12.11"),  # here production is the older one
        (1, 13): _row((31, 36), lts=580, production=595, seen="1.13.9"),
        (1, 14): _row((32, 37), lts=580, production=595, seen="1.14.0-rc.1"),
        (1, 15): _row((33, 38), lts=580, production=595, seen="1.15.0-beta.0", new_feature=615),
    }),
    origins=(
        TableOrigin(OF_RELEASES[0], date(2026, 11, 22), "github.com/siderolabs/talos, pkg/machinery/compatibility"),
        TableOrigin(OF_RELEASES[1], date(2026, 11, 22), "github.com/siderolabs/extensions, nvidia-gpu at the tag of each release"),
        TableOrigin("GPU models", date(2026, 11, 22), "lists of Lambda, Paperspace, RunPod and Vast.ai; data sheets of NVIDIA and AMD"),
    ),
)  # fmt: skip
"""1.14 and 1.15 had no final release on that day: their rows say what the pre-releases named. In 1.15 lts and production go on, and
new-feature is a third track. Whether the final releases have the same drivers is not known, so validate.yml warns (``is_preview``)."""


class _Current:
    """The tables of this process; a module call sets them before it reads anything else."""

    def __init__(self) -> None:
        self.tables = BUILT_IN


_current = _Current()


def tables() -> ReleaseTables:
    """The rows that count: the built-in ones with those of the user's file."""
    return _current.tables


def use(new: ReleaseTables) -> None:
    """Let these count from now on."""
    _current.tables = new
