# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A witness that cannot be had is a skip of one line, and a failure where everything is required."""

from __future__ import annotations

import pathlib

import pytest

from . import witness


def test_without_the_package_index_a_witness_is_skipped_and_where_all_is_required_missed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "CACHE", tmp_path / "witness")
    monkeypatch.setattr(witness, "_tried", {})
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")  # nobody listens there
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    for name in ("CI", "TGP_REQUIRE_PLANE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception) as skipped:
        witness.node_home("@example/nothing@1.0.0")
    said = str(skipped.value)
    assert said.startswith("@example/nothing@1.0.0 could not be installed: ") and "\n" not in said
    monkeypatch.setenv("TGP_REQUIRE_PLANE", "1")
    with pytest.raises(pytest.fail.Exception) as failed:
        witness.node_home("@example/nothing@1.0.0")
    assert str(failed.value) == said
    assert not list((tmp_path / "witness").glob("*/complete"))
