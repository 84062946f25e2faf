# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A start script in each cloud's form, within each cloud's limits."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import random
import shutil
import stat
import string
import subprocess

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet.cloud_config import Boot, boot
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import documents_for, payload, start_script
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.user_data import pack
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Capability, Guard, Lane
from ansible_collections.tgp.gpu.plugins.module_utils.providers.paperspace.cloud import FACTS as PAPERSPACE
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast.cloud import FACTS as VAST

from sandbox.payload import UBUNTU
from sandbox.payload_reader import read
from tests.fixtures.talos_nodes import NODE_KEY, make

LAMBDA = Capability("lambda", (Lane.KUBELET,), user_data_limit=1_000_000)
# what cannot be compressed, as a large file of a template would be
NOISE = "".join(random.Random(4).choices(string.ascii_letters + string.digits, k=60_000))


def test_a_real_payload_fits_every_cloud_with_room_to_spare():
    script = payload(make(lane=Lane.KUBELET), capability=PAPERSPACE)
    assert script.carrier == "script" and not script.environment
    assert len(script.text.encode()) < 13_500
    variables = payload(make(lane=Lane.KUBELET), capability=VAST)
    assert variables.carrier == "script" and len(variables.text) < 1_000  # Vast.ai: 4048 for the start script
    assert sum(len(name) + len(value) for name, value in variables.environment.items()) < 16_000
    assert {name[:12] for name in variables.environment} == {"TGP_PAYLOAD_"}
    assert max(len(value) for value in variables.environment.values()) <= 240
    assert NODE_KEY not in repr(script) + repr(variables)


def test_the_pieces_are_the_script_in_the_order_of_their_names():
    for length in (10, 20_000):
        script = f"#!/bin/bash\n: {NOISE[:length]}\n"
        made = pack(script, VAST, "n")
        assert list(made.environment) == sorted(made.environment)
        assert gzip.decompress(base64.b64decode("".join(made.environment.values()))).decode() == script
    assert "TGP_PAYLOAD_00" in pack("x", VAST, "n").environment


def test_more_than_a_hundred_pieces_keep_their_order_too():
    made = pack(f": {NOISE}", Capability("roomy", (), carrier=VAST.carrier, user_data_limit=200_000), "n")
    assert len(made.environment) > 100 and list(made.environment) == sorted(made.environment)


@pytest.mark.parametrize("capability", [PAPERSPACE, VAST])
def test_what_is_too_big_is_refused_with_both_sizes(capability):
    with pytest.raises(
        InvalidInput, match=rf"node tgp-1 has \d+ bytes and {capability.cloud} carries {capability.user_data_limit}"
    ) as caught:
        pack(f": {NOISE}", capability, "tgp-1")
    assert NOISE[:20] not in str(caught.value)


def test_user_data_is_the_script_itself():
    made = pack("#!/bin/sh\n", LAMBDA, "n")
    assert (made.user_data, dict(made.environment)) == ("#!/bin/sh\n", {})


def test_a_configuration_of_talos_cannot_be_handed_over_by_a_script():
    with pytest.raises(InvalidInput, match="paperspace runs scripts"):
        payload(make(), capability=PAPERSPACE)


def test_files_come_whole_whatever_is_in_them(tmp_path):
    contents = ["no end of line", "TGP\nin the way\n", "", "$HOME `id` \\ 'q' \"q\"\n", "ünï\n", "\n"]
    files = [{"path": f"{tmp_path}/a b/{n}", "permissions": "0640", "content": content} for n, content in enumerate(contents)]
    files.append({"path": f"{tmp_path}/a b/4", "permissions": "0600", "content": "more", "append": True})
    script = start_script(Boot("n", tuple(files), (("touch", f"{tmp_path}/it's done"),)))
    subprocess.run(["bash"], input=script.encode(), check=True)
    for n, content in enumerate(contents):
        assert (tmp_path / "a b" / str(n)).read_text() == content + ("more" if n == 4 else "")
    modes = [stat.S_IMODE((tmp_path / "a b" / name).stat().st_mode) for name in ("0", "4", "")]
    assert modes == [0o640, 0o600, 0o755] and (tmp_path / "it's done").exists()


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("capability", [LAMBDA, PAPERSPACE, VAST])
def test_shellcheck_has_nothing_against_the_wrappers(capability):
    spec = make(lane=Lane.KUBELET)
    script = start_script(boot(spec, documents_for(spec, None)[0]))
    text = pack(script, capability, "n").user_data
    found = subprocess.run(["shellcheck", "-s", "bash", "-"], input=text.encode(), capture_output=True, check=False)
    assert found.stdout.decode() == ""


def test_a_machine_of_the_sandbox_is_told_the_same_by_every_carrier():
    told = [payload(make(lane=Lane.KUBELET), capability=capability) for capability in (LAMBDA, PAPERSPACE, VAST)]
    first, *others = (read(one.text, UBUNTU, one.environment) for one in told)
    assert first is not None and others == [first, first]


def test_a_script_that_is_too_long_goes_without_the_comments_of_our_own_programs():
    """A guard and a WireGuard tunnel together are a few bytes more than Paperspace carries. Files of users keep their lines."""
    spec = make(lane=Lane.KUBELET, guard=Guard(86_400, None), guard_lease="/apis/x")
    whole = payload(spec, capability=PAPERSPACE)
    narrow = dataclasses.replace(PAPERSPACE, user_data_limit=len(whole.text.encode()) - 1)
    lean = payload(spec, capability=narrow)
    assert len(lean.text.encode()) < len(whole.text.encode()) - 500
    before, after = (_unpacked(made.text) for made in (whole, lean))
    assert "# Powers this machine off" in before and "# Powers this machine off" not in after
    assert [line for line in before.splitlines() if not line.lstrip().startswith("# ")] == [
        line for line in after.splitlines() if not line.lstrip().startswith("# ")
    ]
    assert "# Makes this machine a Kubernetes worker" in after, "the start script itself is as it was"


def _unpacked(text: str) -> str:
    return gzip.decompress(base64.b64decode(text.partition(">/run/tgp-payload\n")[2].partition("\nTGP\n")[0])).decode()
