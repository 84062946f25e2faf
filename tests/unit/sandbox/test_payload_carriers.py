# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packed start scripts, decoded as bash would, and read like any other."""

from __future__ import annotations

import base64
import gzip
import textwrap

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.user_data import pack
from ansible_collections.tgp.gpu.plugins.module_utils.model import Capability, Carrier, Lane

from sandbox.payload import UBUNTU, Refused
from sandbox.payload_reader import read

from .test_payload import FILES


def inner() -> str:
    """A script that writes the files of the kubelet lane and starts the program."""
    parts = [f"cat > {path} <<'EOF_{i}'\n{content.strip()}\nEOF_{i}\n" for i, (path, content) in enumerate(FILES.items())]
    return (
        "#!/bin/bash\nset -e\nmkdir -p /etc/tgp\n"
        + "".join(parts)
        + "chmod 700 /usr/local/sbin/tgp-bootstrap\n/usr/local/sbin/tgp-bootstrap\n"
    )


PACKED = base64.b64encode(gzip.compress(inner().encode(), mtime=0)).decode()
LINES = "\n".join(textwrap.wrap(PACKED, 76))
SCRIPT = (
    f"#!/bin/bash\nset -eu\numask 077\nbase64 -d <<'TGP' | gzip -dc >/run/tgp-payload\n{LINES}\nTGP\nexec bash /run/tgp-payload\n"
)
PARTS = {f"TGP_PAYLOAD_{number:02d}": PACKED[begin : begin + 240] for number, begin in enumerate(range(0, len(PACKED), 240))}
ONSTART = {
    "sed": "sed -n 's/^TGP_PAYLOAD_[0-9]*=\"\\{0,1\\}\\([^\"]*\\)\"\\{0,1\\}$/\\1/p' /etc/environment | tr -d '\\n' | base64 -d | gzip -dc"
    " >/run/tgp-payload\nbash /run/tgp-payload\n",
    "loop": '. /etc/environment\nfor n in $(seq -w 0 99); do v="TGP_PAYLOAD_$n"; printf %s "${!v:-}"; done | base64 -d | gzip -dc'
    " >/run/tgp-payload\nbash /run/tgp-payload\n",
    "pipe": "grep ^TGP_PAYLOAD_ /etc/environment | sort | cut -d= -f2- | tr -d '\"\\n' | base64 --decode | gunzip | bash\n",
    "variable": 'set -a; . /etc/environment; set +a\ndata=""\nfor n in $(compgen -v TGP_PAYLOAD_ | sort); do data+="${!n}"; done\n'
    'printf %s "$data" | base64 -d | gzip -d > /run/tgp-payload && bash /run/tgp-payload\n',
}


def test_a_script_with_its_inside_in_a_here_document_is_understood() -> None:
    intent = read(SCRIPT, UBUNTU)
    assert intent is not None and intent.mesh is not None
    assert (intent.lane, intent.node_name) == ("kubelet", "tgp-a-1")
    assert intent.steps == ("preflight", "packages", "mesh", "done")


@pytest.mark.parametrize("way", ONSTART)
def test_a_script_with_its_inside_in_the_environment_is_understood(way: str) -> None:
    assert len(PARTS) > 5 and max(map(len, PARTS.values())) <= 240
    shuffled = dict(sorted(PARTS.items(), reverse=True))
    intent = read(f"#!/bin/bash\n{ONSTART[way]}", UBUNTU, {**shuffled, "OTHER": "x"})
    assert intent is not None and intent.node_name == "tgp-a-1"


@pytest.mark.parametrize("way", ONSTART)
def test_a_part_that_is_missing_is_no_script(way: str) -> None:
    fewer = {name: value for name, value in PARTS.items() if name != "TGP_PAYLOAD_02"}
    for environment in (fewer, {}):
        with pytest.raises(Refused) as caught:
            read(f"#!/bin/bash\n{ONSTART[way]}", UBUNTU, environment)
        assert caught.value.step == "config" and "start script: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SCRIPT.replace(LINES, LINES[: 77 * 4]), "gzip: stdin: unexpected end of file"),
        (SCRIPT.replace(LINES, "@" + LINES), "base64: invalid input"),
        (SCRIPT.replace(" | gzip -dc", ""), "cannot execute binary file"),
        (SCRIPT.replace("exec bash /run/tgp-payload", "true"), "nothing starts /run/tgp-payload"),
        (SCRIPT.removeprefix("#!/bin/bash\n"), "neither #cloud-config nor #!"),
    ],
)
def test_what_is_packed_wrongly(text: str, says: str) -> None:
    with pytest.raises(Refused) as caught:
        read(text, UBUNTU)
    assert says in str(caught.value)


def test_the_inner_script_is_held_to_the_same_rules() -> None:
    lame = base64.b64encode(gzip.compress(inner().replace("chmod 700", "chmod 600").encode())).decode()
    with pytest.raises(Refused) as caught:
        read(SCRIPT.replace(LINES, lame), UBUNTU)
    assert caught.value.step == "bootstrap" and "Permission denied" in str(caught.value)


@pytest.mark.parametrize("carrier", [Carrier.SCRIPT, Carrier.ENVIRONMENT])
def test_what_our_lanes_pack_is_understood(carrier: Carrier) -> None:
    made = pack(inner(), Capability("any", (Lane.KUBELET,), carrier=carrier, user_data_limit=16_000), "tgp-a-1")
    assert bool(made.environment) == (carrier is Carrier.ENVIRONMENT)
    intent = read(made.user_data, UBUNTU, made.environment)
    assert intent is not None and intent.node_name == "tgp-a-1"
