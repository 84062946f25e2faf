# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which MIG instances fit on one GPU (L-52), by the profiles and placements that NVIDIA documents for each model.

A GPU has 8 (or 4) memory slices in a row. An instance takes neighbouring slices, from one of few starts. Profiles with a suffix lie as
those without it; they differ in the engines that they take beside the slices. A model that is not in the table is unknown and holds
nothing: no machine is rented on a guess.
"""

from __future__ import annotations

import functools
import re
import typing as t

from ...model.resources import MIG_PREFIX
from . import gpu_models

READ = "2026-11-28"  # when the list of GPUs and the A30 were compared with NVIDIA's MIG User Guide (v590); the rest is unverified
MEMORY_TOLERANCE: t.Final = 10  # per cent by which the memory that a provider names may differ from the size in the table
_SUFFIX = re.compile(r"(\+me(\.all)?|\+gfx|-me)$")
NAME = re.compile(r"[1-7]g\.[1-9][0-9]{0,2}gb" + _SUFFIX.pattern.replace("$", "?"))


class Shape(t.NamedTuple):
    """How a profile lies on a GPU: compute slices, memory slices, and the memory slices at which it may start.

    ``media``: how many of the GPU's media engines of each kind it takes; a GPU has as many as memory slices. ``extended``: it has the media
    extensions, of which a GPU has one set.
    """

    compute: int
    memory: int
    starts: tuple[int, ...]
    media: int
    extended: bool = False


def _plain(compute: int, memory: int, *starts: int) -> Shape:
    """Without a suffix. Where NVIDIA gives a profile of 8 slices fewer media engines than slices, they are never what a layout lacks."""
    return Shape(compute, memory, starts, memory)


_EIGHT = (
    _plain(1, 1, 0, 1, 2, 3, 4, 5, 6),
    _plain(1, 2, 0, 2, 4, 6),
    _plain(2, 2, 0, 2, 4),
    _plain(3, 4, 0, 4),
    _plain(4, 4, 0),
    _plain(7, 8, 0),
)
_FOUR = (_plain(1, 1, 0, 1, 2, 3), _plain(2, 2, 0, 2), _plain(4, 4, 0))

# models, GiB of one GPU, shapes, the names of the profiles in the order of the shapes, those of the same shapes with a suffix
_TABLE: tuple[tuple[tuple[str, ...], int, tuple[Shape, ...], str, str], ...] = (
    (("A30",), 24, _FOUR, "1g.6gb 2g.12gb 4g.24gb", "1g.6gb+me 2g.12gb+me"),
    (("A100", "A100-PCIE", "A100-SXM"), 40, _EIGHT, "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", "1g.5gb+me"),
    (("A100", "A100-PCIE", "A100-SXM"), 80, _EIGHT, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", "1g.10gb+me"),
    (("H100", "H100-PCIE", "H100-SXM"), 80, _EIGHT, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", "1g.10gb+me"),
    (("H100", "H100-NVL"), 94, _EIGHT, "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb", "1g.12gb+me"),
    (("GH200",), 96, _EIGHT, "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb", "1g.12gb+me"),
    (("H200", "H200-NVL"), 141, _EIGHT, "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", "1g.18gb+me"),
    (("B200",), 180, _EIGHT, "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb", "1g.23gb+me"),
    (("GB200",), 186, _EIGHT, "1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb", "1g.23gb+me"),
    (
        ("RTXPRO6000", "RTXPRO6000WS", "RTXPRO6000MaxQ"),
        96,
        _FOUR,
        "1g.24gb 2g.48gb 4g.96gb",
        "1g.24gb+me 1g.24gb+me.all 1g.24gb+gfx 1g.24gb-me 2g.48gb+me.all 2g.48gb+gfx 2g.48gb-me 4g.96gb+gfx",
    ),
)


def _profiles(forms: tuple[Shape, ...], plain: str, others: str) -> dict[str, Shape]:
    """Those of one row. ``-me`` has no media engines, ``+me.all`` every one of its GPU, ``+gfx`` those of the plain profile."""
    found = dict(zip(plain.split(), forms, strict=True))
    for name in others.split():
        suffix = "".join(_SUFFIX.findall(name)[0][:1])
        form = found[name.removesuffix(suffix)]
        media = {"-me": 0, "+me.all": forms[-1].media}.get(suffix, form.media)
        found[name] = form._replace(media=media, extended=suffix.startswith("+me"))
    return found


_ROWS = tuple((models, gib, _profiles(forms, plain, others)) for models, gib, forms, plain, others in _TABLE)


def resource(profile: str) -> str:
    """The resource under which a device plugin (v0.20 or newer) with ``migStrategy: mixed`` offers instances of a profile."""
    return f"{MIG_PREFIX}{profile.replace('+', '.')}"


def known() -> frozenset[str]:
    """Every profile that some model of the table has."""
    return frozenset(name for _models, _gib, forms in _ROWS for name in forms)


def shapes(model: str, memory_mib: int | None) -> dict[str, Shape] | None:
    """The profiles of a GPU; None where its model or its size is not known. ``memory_mib``: as a provider names it, of one GPU."""
    rows = [row for row in _ROWS if model in row[0] and (memory_mib is None or _is_size(memory_mib, row[1]))]
    if not rows or (memory_mib is None and len(rows) > 1):
        return None
    if memory_mib is not None:
        wanted = memory_mib
        rows.sort(key=lambda row: abs(row[1] * 1024 - wanted))
    return dict(rows[0][2])


def _is_size(memory_mib: int, gib: int) -> bool:
    return abs(memory_mib - gib * 1024) * 100 <= gib * 1024 * MEMORY_TOLERANCE


def place(wanted: t.Mapping[str, int], forms: t.Mapping[str, Shape]) -> tuple[tuple[str, int], ...] | None:
    """Where each instance lies on one GPU, as (profile, first memory slice); None when they do not all fit on it, or one has no shape.

    Exact: every placement is tried, the largest instances first. ``wanted``: profile to number of instances."""
    if _lacking(wanted, forms):
        return None
    rows = tuple(
        (name, *forms[name][:3])
        for name in sorted(wanted, key=lambda one: (-forms[one].memory, one))
        for _one in range(wanted[name])
    )
    return _lay(rows, 0)


def _lacking(wanted: t.Mapping[str, int], forms: t.Mapping[str, Shape]) -> str:
    """What a GPU of these profiles lacks, whatever place each instance gets; empty when nothing."""
    if absent := sorted(name for name, number in wanted.items() if number and name not in forms):
        return f"it has no profile {', '.join(absent)}, only {', '.join(forms)}"
    used = [(number, forms[name]) for name, number in wanted.items() if number]
    if sum(number for number, form in used if form.extended) > 1:
        return "only one instance of a GPU has media extensions"
    slices, engines = max(form.memory for form in forms.values()), max(form.media for form in forms.values())
    if (memory := sum(number * form.memory for number, form in used)) > slices:
        return f"these take {memory} memory slices, and it has {slices}"
    if (media := sum(number * form.media for number, form in used)) > engines:
        return f"these take {media} media engines of each kind, and it has {engines}"
    return ""


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
    if place(wanted, forms) is not None:
        return ""
    return f"{model} cannot hold {words(wanted)}: {_lacking(wanted, forms) or 'their memory slices would overlap'}"


def nowhere(wanted: t.Mapping[str, int]) -> str:
    """Why no model of the table can be divided so; empty when one can."""
    unknown = sorted(set(wanted) - known())
    if unknown:
        return f"no model of the table of {READ} has MIG profile {', '.join(unknown)}"
    if any(place(wanted, forms) is not None for _models, _gib, forms in _ROWS):
        return ""
    whole = [lacking for _models, _gib, forms in _ROWS if wanted.keys() <= forms.keys() and (lacking := _lacking(wanted, forms))]
    return f"no model of the table of {READ} holds {words(wanted)} on one GPU{': ' if whole else ''}{''.join(whole[:1])}"


def against_kinds(kinds: t.Iterable[str], wanted: t.Mapping[str, int]) -> str:
    """Why no GPU that a class or pool names can be divided so; empty when one can. ``kinds``: as documents name them (A100 80GB)."""
    reasons: list[str] = []
    for kind in kinds:
        rows = [
            (model, gib * 1024) for models, gib, _forms in _ROWS for model in models if gpu_models.matches(kind, model, gib * 1024)
        ]
        found = [against(model, memory, wanted) for model, memory in rows] or [f"the MIG profiles of {kind} are not known"]
        if not all(found):
            return ""
        reasons += found[:1]
    return "; ".join(dict.fromkeys(reasons))


def words(wanted: t.Mapping[str, int]) -> str:
    """``3 × 1g.10gb and 1 × 3g.40gb``."""
    return " and ".join(f"{number} × {name}" for name, number in sorted(wanted.items()))
