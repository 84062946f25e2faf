# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which MIG instances fit on one GPU (L-52), by the profiles and placements that NVIDIA documents for each model.

A GPU has 8 (or 4) memory slices in a row. An instance takes neighbouring slices, from one of few starts. A model that is not in the table
is unknown and holds nothing: no machine is rented on a guess.
"""

from __future__ import annotations

import functools
import re
import typing as t

from ...model.resources import MIG_PREFIX

READ = "2026-11-28"  # when the list of GPUs and the A30 were compared with NVIDIA's MIG User Guide (v590); the rest is unverified
MEMORY_TOLERANCE: t.Final = 10  # per cent by which the memory that a provider names may differ from the size in the table
NAME = re.compile(r"[1-7]g\.[1-9][0-9]{0,2}gb")


class Shape(t.NamedTuple):
    """How a profile lies on a GPU: compute slices, memory slices, and the memory slices at which it may start."""

    compute: int
    memory: int
    starts: tuple[int, ...]


_EIGHT = (
    Shape(1, 1, (0, 1, 2, 3, 4, 5, 6)),
    Shape(1, 2, (0, 2, 4, 6)),
    Shape(2, 2, (0, 2, 4)),
    Shape(3, 4, (0, 4)),
    Shape(4, 4, (0,)),
    Shape(7, 8, (0,)),
)
_FOUR = (Shape(1, 1, (0, 1, 2, 3)), Shape(2, 2, (0, 2)), Shape(4, 4, (0,)))

# models, GiB of one GPU, shapes, the names of the profiles in the order of the shapes
_TABLE: tuple[tuple[tuple[str, ...], int, tuple[Shape, ...], str], ...] = (
    (("A30",), 24, _FOUR, "1g.6gb 2g.12gb 4g.24gb"),
    (("A100", "A100-PCIE", "A100-SXM"), 40, _EIGHT, "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),
    (("A100", "A100-PCIE", "A100-SXM"), 80, _EIGHT, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
    (("H100", "H100-PCIE", "H100-SXM"), 80, _EIGHT, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
    (("H100", "H100-NVL"), 94, _EIGHT, "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb"),
    (("GH200",), 96, _EIGHT, "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb"),
    (("H200", "H200-NVL"), 141, _EIGHT, "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
    (("B200",), 180, _EIGHT, "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
    (("GB200",), 186, _EIGHT, "1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb"),
    (("RTXPRO6000", "RTXPRO6000WS", "RTXPRO6000MaxQ"), 96, _FOUR, "1g.24gb 2g.48gb 4g.96gb"),
)


def resource(profile: str) -> str:
    """The resource under which a device plugin with ``migStrategy: mixed`` offers instances of a profile."""
    return f"{MIG_PREFIX}{profile}"


def known() -> frozenset[str]:
    """Every profile that some model of the table has."""
    return frozenset(name for *_rest, names in _TABLE for name in names.split())


def shapes(model: str, memory_mib: int | None) -> dict[str, Shape] | None:
    """The profiles of a GPU; None where its model or its size is not known. ``memory_mib``: as a provider names it, of one GPU."""
    rows = [row for row in _TABLE if model in row[0] and (memory_mib is None or _is_size(memory_mib, row[1]))]
    if not rows or (memory_mib is None and len(rows) > 1):
        return None
    if memory_mib is not None:
        wanted = memory_mib
        rows.sort(key=lambda row: abs(row[1] * 1024 - wanted))
    _models, _gib, forms, names = rows[0]
    return dict(zip(names.split(), forms, strict=True))


def _is_size(memory_mib: int, gib: int) -> bool:
    return abs(memory_mib - gib * 1024) * 100 <= gib * 1024 * MEMORY_TOLERANCE


def place(wanted: t.Mapping[str, int], forms: t.Mapping[str, Shape]) -> tuple[tuple[str, int], ...] | None:
    """Where each instance lies on one GPU, as (profile, first memory slice); None when they do not all fit on it, or one has no shape.

    Exact: every placement is tried, the largest instances first. ``wanted``: profile to number of instances."""
    if any(name not in forms for name, number in wanted.items() if number):
        return None
    rows = tuple(
        (name, *forms[name]) for name in sorted(wanted, key=lambda one: (-forms[one].memory, one)) for _one in range(wanted[name])
    )
    if sum(memory for _name, _compute, memory, _starts in rows) > max(form.memory for form in forms.values()):
        return None
    return _lay(rows, 0)


@functools.lru_cache(maxsize=4096)
def _lay(rows: tuple[tuple[str, int, int, tuple[int, ...]], ...], taken: int) -> tuple[tuple[str, int], ...] | None:
    """``taken``: a bit for each memory slice that is used."""
    if not rows:
        return ()
    name, _compute, memory, starts = rows[0]
    for start in starts:
        slices = ((1 << memory) - 1) << start
        if taken & slices:
            continue
        rest = _lay(rows[1:], taken | slices)
        if rest is not None:
            return ((name, start), *rest)
    return None


def against(model: str, memory_mib: int | None, wanted: t.Mapping[str, int]) -> str:
    """Why a GPU cannot be divided so; empty when it can."""
    forms = shapes(model, memory_mib)
    if forms is None:
        size = "" if memory_mib is None else f" with {memory_mib} MiB"
        return f"the MIG profiles of {model or 'an unnamed model'}{size} are not known"
    return "" if place(wanted, forms) is not None else f"{model} cannot hold {words(wanted)}; it has {', '.join(forms)}"


def nowhere(wanted: t.Mapping[str, int]) -> str:
    """Why no model of the table can be divided so; empty when one can."""
    unknown = sorted(set(wanted) - known())
    if unknown:
        return f"no model of the table of {READ} has MIG profile {', '.join(unknown)}"
    fits = any(place(wanted, dict(zip(names.split(), forms, strict=True))) is not None for _models, _gib, forms, names in _TABLE)
    return "" if fits else f"no model of the table of {READ} holds {words(wanted)} on one GPU"


def words(wanted: t.Mapping[str, int]) -> str:
    """``3 × 1g.10gb and 1 × 3g.40gb``."""
    return " and ".join(f"{number} × {name}" for name, number in sorted(wanted.items()))
