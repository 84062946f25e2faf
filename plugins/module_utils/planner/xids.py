# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVIDIA's XIDs, the numbers of GPU errors, say of a machine (L-55).

The rows are those that NVSentinel keeps of NVIDIA's catalogue. A newer driver may have others: a number without a row means nothing here,
and a pool may name it in ``unhealthyConditions``. Not checked against GPUs that report them.
"""

from __future__ import annotations

import dataclasses
import enum
import typing as t

AS_OF = "2026-11-22"  # when the rows were read


class XidKind(enum.StrEnum):
    """Whose fault it is. The driver of a machine cannot be restarted from here and its GPU not be reset: the machine is replaced for both."""

    MACHINE = "machine"
    RESET = "reset"
    PROGRAM = "program"
    NOTE = "note"
    UNKNOWN = "unknown"


BROKEN = frozenset({XidKind.MACHINE, XidKind.RESET})
_REMEDY = {
    XidKind.MACHINE: "The GPU works again at the earliest after a restart of the machine: replace it.",
    XidKind.RESET: "The GPU has to be reset. Where nvidia-smi --gpu-reset is refused, as on most rented machines, replace the machine.",
    XidKind.PROGRAM: "Look at the program that used the GPU. The machine stays.",
    XidKind.NOTE: "Nothing has to be done now. Replace the machine if it comes again and again.",
    XidKind.UNKNOWN: "This version has no row for it: see NVIDIA's XID catalogue. A pool may name it in unhealthyConditions.",
}


@dataclasses.dataclass(frozen=True, slots=True)
class XidMeaning:
    """What an XID says."""

    kind: XidKind
    text: str

    @property
    def remedy(self) -> str:
        return _REMEDY[self.kind]


_NVLINK = "an error of NVLink"
_MEANINGS: dict[int, tuple[XidKind, str]] = {
    13: (XidKind.PROGRAM, "an exception of the graphics engine"),
    31: (XidKind.PROGRAM, "an access to a page of memory that is not there"),
    32: (XidKind.PROGRAM, "a corrupted stream of commands"),
    43: (XidKind.PROGRAM, "the GPU stopped a program"),
    45: (XidKind.PROGRAM, "work was removed after an earlier error"),
    46: (XidKind.RESET, "the GPU stopped processing"),
    48: (XidKind.RESET, "an error of two bits in memory (ECC)"),
    54: (XidKind.MACHINE, "the auxiliary power is not connected"),
    62: (XidKind.RESET, "the GPU's controller has halted"),
    63: (XidKind.NOTE, "a row of memory is to be remapped"),
    64: (XidKind.RESET, "a row of memory could not be remapped"),
    68: (XidKind.PROGRAM, "an exception of the video decoder"),
    69: (XidKind.PROGRAM, "an error of the graphics engine's class"),
    74: (XidKind.RESET, _NVLINK),
    78: (XidKind.NOTE, "a vGPU did not start: the software is too old"),
    79: (XidKind.MACHINE, "the GPU has fallen off the bus"),
    92: (XidKind.NOTE, "many errors of one bit in memory"),
    93: (XidKind.NOTE, "the GPU's own store is written too often"),
    94: (XidKind.PROGRAM, "an error in memory that only one program has"),
    95: (XidKind.RESET, "an error in memory that is not contained"),
    109: (XidKind.RESET, "a switch between programs took too long"),
    110: (XidKind.RESET, "a security fault"),
    119: (XidKind.RESET, "the GPU's system processor (GSP) does not answer"),
    120: (XidKind.RESET, "the GPU's system processor (GSP) failed"),
    121: (XidKind.NOTE, "a corrected error of the link between the chips"),
    136: (XidKind.RESET, "a link could not be trained"),
    140: (XidKind.RESET, "an error in memory that was not corrected"),
    143: (XidKind.RESET, "the GPU could not be initialized"),
    **{number: (XidKind.RESET, _NVLINK) for number in range(144, 151)},
    151: (XidKind.MACHINE, "a key could not be changed"),
    154: (XidKind.NOTE, "what the GPU needs to recover has changed"),
    155: (XidKind.RESET, "an error of NVLink that software reports"),
    156: (XidKind.RESET, "a fatal error that retires a resource"),
    158: (XidKind.RESET, "a fatal timeout"),
    160: (XidKind.MACHINE, "a fatal error that ends with a restart of the machine"),
}


def meaning(xid: int) -> XidMeaning:
    """What an XID says; of kind unknown without a row."""
    return XidMeaning(*_MEANINGS.get(xid, (XidKind.UNKNOWN, "a number that is not in the table")))


def broken() -> tuple[int, ...]:
    """The XIDs after which a GPU does not work until it is reset or its machine is restarted."""
    return tuple(sorted(xid for xid, (kind, _text) in _MEANINGS.items() if kind in BROKEN))


def xid_rows(last: t.Mapping[str, t.Sequence[int]]) -> list[dict[str, t.Any]]:
    """The XIDs of each GPU that has one, as data: gpu, xid, kind, meaning, remedy. ``last``: as GpuXids has them."""
    return [
        {"gpu": gpu, "xid": xid, "kind": found.kind.value, "meaning": found.text, "remedy": found.remedy}
        for gpu, numbers in sorted(last.items())
        for xid in numbers
        for found in (meaning(xid),)
    ]


def xid_line(row: t.Mapping[str, t.Any]) -> str:
    """One of these rows in words."""
    return f"XID {row['xid']} of GPU {row['gpu']} ({row['kind']}): {row['meaning']}. {row['remedy']}"
