# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Extensions that the release of a class's image does not have are refused before anything is rented; who cannot be asked stops nobody."""

from __future__ import annotations

import typing as t

import pytest

from tests.fixtures.demo import demo_documents

from .box import Sandbox, by_name


def documents(*extensions: str) -> list[dict[str, t.Any]]:
    found = demo_documents()
    names = sorted(("siderolabs/tailscale", *extensions))
    by_name(found, "GPUNodeClass", "demo")["spec"]["talosConfig"]["schematic"] = {
        "customization": {"systemExtensions": {"officialExtensions": names}}
    }
    return found


OPEN = ("siderolabs/nvidia-container-toolkit-production", "siderolabs/nvidia-open-gpu-kernel-modules-production")


@pytest.mark.parametrize("playbook", ["validate", "provision"])
def test_an_extension_that_does_not_exist(sandbox: Sandbox, playbook: str) -> None:
    told = sandbox.playbook(playbook, documents=documents(*OPEN, "siderolabs/tailscales")).failed()
    assert (
        "talosConfig.schematic: siderolabs/tailscales is not an official extension of Talos 1.13.9; it has siderolabs/tailscale"
        in told.words
    )
    assert sandbox.totals()["instances"] == 0 and [one for one in sandbox.writes() if not one.startswith("kubernetes ")] == []


def test_a_release_that_the_factory_does_not_have(sandbox: Sandbox) -> None:
    told = sandbox.playbook("validate", documents=documents(*OPEN), extra_vars={"options": {"talos_version": "1.13.77"}}).failed()
    assert "talosConfig.schematic" in told.words and "1.13.77" in told.words


def test_extensions_that_exist_and_a_factory_that_does_not_answer(sandbox: Sandbox) -> None:
    assert "was not found out" not in sandbox.playbook("validate", documents=documents(*OPEN)).succeeded().words
    silent = sandbox.playbook("validate", documents=documents(*OPEN), env={"IMAGE_FACTORY_URL": "http://127.0.0.1:9"}).succeeded()
    assert "whether the extensions of its image exist was not found out" in silent.words
