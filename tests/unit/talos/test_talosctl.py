# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The second opinion: asked where talosctl is there and fits, demanded where it is to be, and never given a secret on its command line."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.talos import talosctl
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build

from tests.fixtures.talos_nodes import NODE_KEY, make


@pytest.fixture(name="program")
def _program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., pathlib.Path]:
    def put(version: str = "v1.13.9", says: str = "", status: int = 0) -> pathlib.Path:
        file = tmp_path / "talosctl"
        file.write_text(
            "#!/bin/sh\n"
            f'echo "$@" >>{tmp_path}/calls\n'
            f'if [ "$1" = version ]; then echo "Talos {version}"; exit; fi\n'
            f'cat "$3" >{tmp_path}/read\n'
            f"printf '%b' '{says}' >&2\nexit {status}\n"
        )
        file.chmod(0o700)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
        return tmp_path

    return put


def test_it_reads_the_configuration_from_a_pipe(program: t.Callable[..., pathlib.Path]) -> None:
    folder = program()
    found = talosctl.find(None)
    assert found is not None and talosctl.unfit(found, "1.13.2") == ""
    assert talosctl.validate(found, build(make()), "cloud") == []
    calls = (folder / "calls").read_text()
    assert "validate --config /dev/stdin --mode cloud" in calls and NODE_KEY not in calls
    assert NODE_KEY in (folder / "read").read_text()


def test_what_it_has_against_it_is_told_without_secrets(program: t.Callable[..., pathlib.Path]) -> None:
    program(says=f"2 errors occurred:\\n\\t* one {NODE_KEY}\\n\\t* two\\n", status=1)
    told = talosctl.validate(str(talosctl.find(None)), build(make()), "cloud")
    assert told[1:] == ["talosctl: one ********", "talosctl: two"]


def test_one_of_another_minor_does_not_judge(program: t.Callable[..., pathlib.Path]) -> None:
    program(version="v1.10.2")
    assert "judge by other rules" in talosctl.unfit(str(talosctl.find(True)), "1.13.9")


def test_none_is_fine_unless_it_is_demanded(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert talosctl.find(None) is None and talosctl.find(False) is None
    with pytest.raises(InvalidInput, match="no such program"):
        talosctl.find(True)
