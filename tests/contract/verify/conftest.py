# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pathlib

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.connect import _VARIABLES
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import ENTRIES


@pytest.fixture(autouse=True)
def own_pace(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for calls that another one made, and none sees the developer's credentials."""
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TGP_STATE_DIR", str(tmp_path / "state"))
    names = [one for entry in ENTRIES.values() for option in entry.spec for one in entry.variables(option)]
    for name in [*names, *(one for variables in _VARIABLES.values() for one in variables)]:
        monkeypatch.delenv(name, raising=False)
