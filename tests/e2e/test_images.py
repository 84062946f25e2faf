# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``images.yml`` as a user runs it against the sandbox: twice, with a snapshot that vanishes and an import that fails."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from tests.fixtures.demo import listed_soon

from .box import Sandbox
from .conftest import Start

SCHEMATIC = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
SETTINGS = {"vultr": "snapshotId", "gcp": "talosImage"}


@pytest.fixture(scope="module")
def shared(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    sections = {"gcp": {"bucket": "tgp-images", "failing_imports": 1}, "vultr": {"failing_imports": 1}}
    return start(speed=200, scenario=listed_soon(tmp_path_factory.mktemp("scenario"), "default", **sections))


def images(provider: str, **more: t.Any) -> dict[str, t.Any]:
    bucket = {"tgp_image_bucket": "tgp-images"} if provider == "gcp" else {}
    return {"documents": None, "extra_vars": {"tgp_provider": provider, "tgp_schematic_id": SCHEMATIC, **bucket, **more}}


@pytest.mark.parametrize("provider", ["vultr", "gcp"])
def test_the_second_run_changes_nothing_also_after_a_failed_import(sandbox: Sandbox, provider: str, tmp_path: Path) -> None:
    planned = sandbox.playbook("images", "--diff", **images(provider), check=True).succeeded()
    assert "would be made" in planned.words and "There is no image yet." in planned.words
    first = sandbox.playbook("images", **images(provider)).succeeded()
    assert ("is gone" if provider == "vultr" else "INVALID_IMAGE") in first.words and SETTINGS[provider] in first.words
    assert first.count("changed") == 1 and "$/month" in first.words
    second = sandbox.playbook("images", **images(provider)).succeeded()
    assert second.count("changed") == 0
    account = sandbox.world()["accounts"][provider]
    assert len(account["snapshots" if provider == "vultr" else "images"]) == 1 and not account.get("objects")


def test_what_is_mistyped_or_missing_is_told_by_its_variable(sandbox: Sandbox) -> None:
    assert "tgp_image_bucket" in sandbox.playbook("images", **images("gcp", tgp_image_bucket="")).failed().words
    assert "tgp_image_keep" in sandbox.playbook("images", **images("vultr", tgp_image_kep=2)).failed().words
    assert "tgp_image_timeout" in sandbox.playbook("images", **images("vultr", tgp_image_timeout="soon")).failed().words
