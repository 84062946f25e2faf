# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One name per GPU model, whatever a cloud or a person calls it.

The canonical name says model and, where it matters for what the card can do, its form (``A100-SXM``); memory is a number beside it
because several models are sold in two sizes. A name without form (``A100``) is a spec that every form of it fulfils.
"""

from __future__ import annotations

import dataclasses
import difflib
import re

# model, vendor, memory per GPU in GiB (all sizes sold), names that do not follow from the model's own by case, blanks and dashes
_TABLE: tuple[tuple[str, str, tuple[int, ...], str], ...] = (
    ("A10", "nvidia", (24,), ""),
    ("A10G", "nvidia", (24,), ""),
    ("A16", "nvidia", (16,), ""),
    ("A30", "nvidia", (24,), "NVIDIA RTX A30"),
    ("A40", "nvidia", (48,), ""),
    ("A100", "nvidia", (40, 80), ""),
    ("A100-PCIE", "nvidia", (40, 80), ""),
    ("A100-SXM", "nvidia", (40, 80), ""),
    ("A100X", "nvidia", (80,), ""),
    ("A800-PCIE", "nvidia", (80,), ""),
    ("B200", "nvidia", (180,), ""),
    ("B300", "nvidia", (288,), "B300 PC|NVIDIA B300 SXM6 AC"),
    ("GB200", "nvidia", (186,), ""),
    ("GB300", "nvidia", (270,), ""),
    ("GH200", "nvidia", (96,), ""),
    ("H100", "nvidia", (80, 94), ""),
    ("H100-PCIE", "nvidia", (80,), ""),
    ("H100-SXM", "nvidia", (80,), "NVIDIA H100 80GB HBM3"),
    ("H100-NVL", "nvidia", (94,), ""),
    ("H200", "nvidia", (141,), ""),
    ("H200-NVL", "nvidia", (141,), ""),
    ("L4", "nvidia", (24,), ""),
    ("L40", "nvidia", (48,), ""),
    ("L40S", "nvidia", (48,), ""),
    ("K20c", "nvidia", (5,), ""),
    ("K80", "nvidia", (12,), ""),
    ("M40", "nvidia", (12, 24), ""),
    ("P4", "nvidia", (8,), ""),
    ("P6", "nvidia", (16,), ""),
    ("P40", "nvidia", (24,), ""),
    ("P100", "nvidia", (12, 16), ""),
    ("T4", "nvidia", (16,), ""),
    ("V100", "nvidia", (16, 32), ""),
    ("V100-PCIE", "nvidia", (16, 32), ""),
    ("V100-SXM2", "nvidia", (16, 32), ""),
    ("V100-FHHL", "nvidia", (16,), ""),
    ("GTX750Ti", "nvidia", (2,), ""),
    ("GTX970", "nvidia", (4,), "GeForce 970"),
    ("GTX1050", "nvidia", (2,), ""),
    ("GTX1050Ti", "nvidia", (4,), ""),
    ("GTX1060", "nvidia", (3, 6), ""),
    ("GTX1070", "nvidia", (8,), ""),
    ("GTX1070Ti", "nvidia", (8,), ""),
    ("GTX1080", "nvidia", (8,), ""),
    ("GTX1080Ti", "nvidia", (11,), ""),
    ("GTX1650", "nvidia", (4,), ""),
    ("GTX1650SUPER", "nvidia", (4,), "GTX 1650 S"),
    ("GTX1650Ti", "nvidia", (4,), ""),
    ("GTX1660", "nvidia", (6,), ""),
    ("GTX1660SUPER", "nvidia", (6,), "GTX 1660 S"),
    ("GTX1660Ti", "nvidia", (6,), ""),
    ("GTXTITANX", "nvidia", (12,), ""),
    ("RTX2060", "nvidia", (6, 12), ""),
    ("RTX2060SUPER", "nvidia", (8,), "RTX 2060S"),
    ("RTX2070", "nvidia", (8,), ""),
    ("RTX2070SUPER", "nvidia", (8,), "RTX 2070S"),
    ("RTX2080", "nvidia", (8,), ""),
    ("RTX2080SUPER", "nvidia", (8,), "RTX 2080S"),
    ("RTX2080Ti", "nvidia", (11,), ""),
    ("RTX3050", "nvidia", (6, 8), ""),
    ("RTX3060", "nvidia", (8, 12), ""),
    ("RTX3060-LAPTOP", "nvidia", (6,), ""),
    ("RTX3060Ti", "nvidia", (8,), ""),
    ("RTX3070", "nvidia", (8,), ""),
    ("RTX3070-LAPTOP", "nvidia", (8,), ""),
    ("RTX3070Ti", "nvidia", (8,), ""),
    ("RTX3080", "nvidia", (10, 12), ""),
    ("RTX3080Ti", "nvidia", (12,), ""),
    ("RTX3090", "nvidia", (24,), ""),
    ("RTX3090Ti", "nvidia", (24,), ""),
    ("RTX4060", "nvidia", (8,), ""),
    ("RTX4060-LAPTOP", "nvidia", (8,), ""),
    ("RTX4060Ti", "nvidia", (8, 16), ""),
    ("RTX4070", "nvidia", (12,), ""),
    ("RTX4070-LAPTOP", "nvidia", (8,), ""),
    ("RTX4070SUPER", "nvidia", (12,), "RTX 4070S"),
    ("RTX4070Ti", "nvidia", (12,), ""),
    ("RTX4070TiSUPER", "nvidia", (16,), "RTX 4070S Ti"),
    ("RTX4080", "nvidia", (16,), ""),
    ("RTX4080-LAPTOP", "nvidia", (12,), ""),
    ("RTX4080SUPER", "nvidia", (16,), "RTX 4080S"),
    ("RTX4090", "nvidia", (24,), ""),
    ("RTX4090D", "nvidia", (24,), ""),
    ("RTX5060", "nvidia", (8,), ""),
    ("RTX5060Ti", "nvidia", (8, 16), ""),
    ("RTX5070", "nvidia", (12,), ""),
    ("RTX5070Ti", "nvidia", (16,), ""),
    ("RTX5080", "nvidia", (16,), ""),
    ("RTX5090", "nvidia", (32,), ""),
    ("TITANX-PASCAL", "nvidia", (12,), "Titan X"),
    ("TITANXp", "nvidia", (12,), ""),
    ("TITANV", "nvidia", (12,), ""),
    ("TITANV-CEO", "nvidia", (32,), ""),
    ("TITANRTX", "nvidia", (24,), ""),
    ("QUADRO-K620", "nvidia", (2,), ""),
    ("QUADRO-K2200", "nvidia", (4,), ""),
    ("QUADRO-M4000", "nvidia", (8,), "M4000"),
    ("QUADRO-P2000", "nvidia", (5,), "P2000"),
    ("QUADRO-P4000", "nvidia", (8,), "P4000"),
    ("QUADRO-P5000", "nvidia", (16,), "P5000"),
    ("QUADRO-P6000", "nvidia", (24,), "P6000"),
    ("QUADRO-GP100", "nvidia", (16,), ""),
    ("QUADRO-GV100", "nvidia", (32,), ""),
    ("QUADRO-RTX4000", "nvidia", (8,), "Q RTX 4000|RTX 4000"),
    ("QUADRO-RTX5000", "nvidia", (16,), "Q RTX 5000|RTX 5000"),
    ("QUADRO-RTX6000", "nvidia", (24,), "Q RTX 6000|RTX 6000"),
    ("QUADRO-RTX8000", "nvidia", (48,), "Q RTX 8000|RTX 8000"),
    ("A2000", "nvidia", (6, 12), "RTX A2000"),
    ("A4000", "nvidia", (16,), "RTX A4000"),
    ("A4500", "nvidia", (20,), "RTX A4500"),
    ("A5000", "nvidia", (24,), "RTX A5000"),
    ("A6000", "nvidia", (48,), "RTX A6000"),
    ("RTX2000Ada", "nvidia", (16,), ""),
    ("RTX4000Ada", "nvidia", (20,), ""),
    ("RTX4000SFFAda", "nvidia", (20,), "RTX 4000 Ada SFF"),
    ("RTX4500Ada", "nvidia", (24,), ""),
    ("RTX5000Ada", "nvidia", (32,), "NVIDIA A5000 Ada"),
    ("RTX5880Ada", "nvidia", (48,), ""),
    ("RTX6000Ada", "nvidia", (48,), ""),
    ("RTXPRO4000", "nvidia", (24,), ""),
    ("RTXPRO4000-MOBILE", "nvidia", (16,), ""),
    ("RTXPRO4500", "nvidia", (32,), "NVIDIA RTX PRO 4500 Blackwell"),
    ("RTXPRO5000", "nvidia", (48, 72), ""),
    ("RTXPRO6000", "nvidia", (96,), "RTX PRO 6000 S|NVIDIA RTX PRO 6000 Blackwell Server Edition"),
    ("RTXPRO6000WS", "nvidia", (96,), "NVIDIA RTX PRO 6000 Blackwell Workstation Edition|RTX PRO 6000 WK"),
    ("RTXPRO6000MaxQ", "nvidia", (96,), "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
    ("RTXPRO6000-MIG-1G", "nvidia", (24,), "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb|PRO 6000 MIG 24GB"),
    ("RTXPRO6000-MIG-2G", "nvidia", (48,), "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 2g.48gb|PRO 6000 MIG 48GB"),
    ("CMP50HX", "nvidia", (10,), ""),
    ("CMP170HX", "nvidia", (8,), ""),
    ("P104-100", "nvidia", (4,), ""),
    ("P106-100", "nvidia", (6,), ""),
    ("MI50", "amd", (16, 32), ""),
    ("MI100", "amd", (32,), ""),
    ("MI210", "amd", (64,), ""),
    ("MI250", "amd", (128,), ""),
    ("MI250X", "amd", (128,), ""),
    ("MI300A", "amd", (128,), ""),
    ("MI300X", "amd", (192,), ""),
    ("MI308X", "amd", (128,), ""),
    ("MI325X", "amd", (288,), ""),
    ("MI350X", "amd", (288,), ""),
    ("MI355X", "amd", (288,), ""),
    ("W6800", "amd", (32,), "PRO W6800"),
    ("W7800", "amd", (32, 48), "PRO W7800"),
    ("W7900", "amd", (48,), "PRO W7900"),
    ("V620", "amd", (32,), "Pro V620"),
    ("RADEON-VII", "amd", (16,), ""),
    ("RADEON-PRO-VII", "amd", (16,), ""),
    ("RX6800", "amd", (16,), ""),
    ("RX6800XT", "amd", (16,), ""),
    ("RX6900XT", "amd", (16,), ""),
    ("RX6950XT", "amd", (16,), ""),
    ("RX7600", "amd", (8,), ""),
    ("RX7700XT", "amd", (12,), ""),
    ("RX7800XT", "amd", (16,), ""),
    ("RX7900GRE", "amd", (16,), ""),
    ("RX7900XT", "amd", (20,), ""),
    ("RX7900XTX", "amd", (24,), ""),
)

_FORMS = frozenset({"PCIE", "SXM", "SXM2", "NVL", "FHHL"})
_FILLERS = re.compile(r"nvidia|corporation|geforce|tesla|instinct|^amd|generation|graphics|gpus?$|hbm\d|shared$")
_BRAND = re.compile(r"radeon")
_COUNT = re.compile(r"(?i)^\s*(?:gpu_)?(\d{1,2})x[\s_]+|(?<=[a-z0-9])x\d{1,2}\s*$")
_MEMORY = re.compile(r"(?i)(?<![a-z0-9.])(\d{1,3})\s?g(?:i?b)?(?![a-z0-9.])")
_FORM = re.compile(r"pcie|sxm|oam|gdr")
_SXM = re.compile(r"sxm\d(gdr)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """What a text says of a GPU: the canonical ``model``, and ``memory_mib`` per GPU if the text names it."""

    model: str
    memory_mib: int | None = None


def _key(text: str) -> str:
    """``text`` without case, blanks, dashes and words that say nothing; all SXM generations are one form."""
    return _SXM.sub("sxm", _FILLERS.sub("", re.sub(r"[^a-z0-9]", "", text.lower())))


_ROWS = {row[0]: row for row in _TABLE}
_INDEX = {_key(name): row[0] for row in _TABLE for name in (row[0], *filter(None, row[3].split("|")))}


def parse(text: str) -> Gpu | None:
    """Read a model out of a person's or a cloud's words: ``RTX 4090``, ``NVIDIA A100 80GB PCIe``, ``A10 (24 GB PCIe)``,
    ``gpu_8x_a100_80gb_sxm4``, ``V100-32Gx2``. None when it names no model we know."""
    memory = _MEMORY.search(_COUNT.sub("", text))
    mib = int(memory.group(1)) * 1024 if memory else None
    counted = _COUNT.sub("", text)
    bare = _MEMORY.sub(" ", counted)
    for words in (text, counted, bare):
        key = _key(words)
        for candidate in (key, _BRAND.sub("", key)):
            if candidate in _INDEX:
                return Gpu(_INDEX[candidate], mib)
    formless = _INDEX.get(_FORM.sub("", _key(bare)))
    return Gpu(formless, mib) if formless else None


def canonical(text: str) -> str | None:
    """The canonical name of the model that ``text`` names, None when unknown."""
    gpu = parse(text)
    return gpu.model if gpu else None


def known() -> tuple[str, ...]:
    """All canonical names."""
    return tuple(_ROWS)


def vendor(model: str) -> str | None:
    """``nvidia`` or ``amd``."""
    row = _ROWS.get(model)
    return row[1] if row else None


def memory_sizes_mib(model: str) -> tuple[int, ...]:
    """Every size per GPU the model is sold with, ascending; empty for an unknown model."""
    row = _ROWS.get(model)
    return tuple(size * 1024 for size in row[2]) if row else ()


def memory_mib(model: str) -> int | None:
    """Memory per GPU; None when the model is unknown or sold in several sizes (then only the offer can tell)."""
    sizes = memory_sizes_mib(model)
    return sizes[0] if len(sizes) == 1 else None


def matches(spec: str, model: str, memory: int | None = None) -> bool:
    """Whether a card of canonical ``model`` with ``memory`` MiB is what ``spec`` asks for.

    ``A100`` is met by every form, ``A100-SXM`` by that one; a size in the spec (``A100 80GB``) must be the card's if that is known.
    """
    wanted = parse(spec)
    if wanted is None:
        return False
    if wanted.memory_mib is not None and memory is not None and wanted.memory_mib != memory:
        return False
    if wanted.model == model:
        return True
    family, _dash, form = model.rpartition("-")
    return family == wanted.model and form in _FORMS


def suggestions(text: str, count: int = 3) -> tuple[str, ...]:
    """Known names that look like ``text``, best first; for messages about a name that is not known."""
    key = _key(_MEMORY.sub(" ", text))
    inside = [model for name, model in _INDEX.items() if len(key) >= 3 and key in name]
    close = [_INDEX[name] for name in difflib.get_close_matches(key, _INDEX, n=count * 2, cutoff=0.7)]
    return tuple(dict.fromkeys(close + inside))[:count]
