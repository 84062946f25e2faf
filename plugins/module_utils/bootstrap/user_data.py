# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A start script in the form in which a cloud takes it.

Three forms (Carrier in model/): user data; a script of limited length, which therefore only unpacks the real one; a short
script and environment variables of limited length, whose contents that script joins.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import typing as t

from ..core.errors import InvalidInput
from ..model import Capability, Carrier

VARIABLE = "TGP_PAYLOAD_"
PIECE = 240  # characters of one variable; Vast.ai takes 256
# A cloud may feed the script to bash by standard input: nothing that it starts may read from there.
_UNPACK = """\
#!/bin/bash
# Unpacks and runs the start script of this node. Written by the Ansible collection tgp.gpu.
[[ ! -e /var/lib/tgp/done ]] || exit 0
set -eo pipefail
umask 077
trap 'rm -f /run/tgp-payload' EXIT
{source} | gzip -dc >/run/tgp-payload
{packed}bash /run/tgp-payload </dev/null
"""
# Variables stand in /etc/environment (or only in our own), in any order and perhaps quoted; their numbers have equal length.
_VARIABLES = (
    r"""{ cat /etc/environment || :; env; } | tr -d "\"'" |"""
    rf" grep -oE '{VARIABLE}[0-9]+=[A-Za-z0-9+/=]+' | LC_ALL=C sort -u | cut -d= -f2- | base64 -d"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Packed:
    """``user_data`` and ``environment`` as a create call takes them; both are secrets."""

    user_data: str = dataclasses.field(repr=False)
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Bytes that count against the cloud's limit: of the variables with their names where there are any, else of the text."""
        if self.environment:
            return sum(len(name) + len(value) for name, value in self.environment.items())
        return len(self.user_data.encode())


def fits(script: str, capability: Capability) -> bool:
    """Whether the cloud can carry it."""
    limit = capability.user_data_limit
    return limit is not None and _FORMS[capability.carrier](script).size <= limit


def pack(script: str, capability: Capability, name: str) -> Packed:
    """``script`` (bash, run once as root) for a machine of node ``name``. Raises InvalidInput when the cloud cannot carry it."""
    if capability.user_data_limit is None:
        raise InvalidInput(f"{capability.cloud} carries no user data, so node {name} cannot be configured at boot.")
    made = _FORMS[capability.carrier](script)
    if made.size > capability.user_data_limit:
        raise InvalidInput(
            f"The payload of node {name} has {made.size} bytes and {capability.cloud} carries {capability.user_data_limit}.",
            remedy="Make the class's template smaller (its machine.files go into the payload as they are).",
        )
    return made


def _as_script(script: str) -> Packed:
    return Packed(_UNPACK.format(source="base64 -d <<'TGP'", packed=f"{_packed(script)}\nTGP\n"))


def _in_variables(script: str) -> Packed:
    packed = _packed(script)
    pieces = [packed[start : start + PIECE] for start in range(0, len(packed), PIECE)]
    digits = max(2, len(str(len(pieces) - 1)))
    variables = {f"{VARIABLE}{number:0{digits}d}": piece for number, piece in enumerate(pieces)}
    return Packed(_UNPACK.format(source=_VARIABLES, packed=""), variables)


def _packed(script: str) -> str:
    return base64.b64encode(gzip.compress(script.encode(), 9, mtime=0)).decode()


_FORMS: t.Mapping[Carrier, t.Callable[[str], Packed]] = {
    Carrier.USER_DATA: Packed,
    Carrier.SCRIPT: _as_script,
    Carrier.ENVIRONMENT: _in_variables,
}
