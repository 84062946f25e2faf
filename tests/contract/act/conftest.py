# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sandbox of its own for every test, and nothing of the caller's environment in it."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from .rig import Rig

try:
    from ansible_collections.tgp.gpu.plugins.module_utils.preflight import endpoint_check
except ImportError:  # the old plugins against which tests/red.py plays have neither
    endpoint_check = endpoint_check = None  # type: ignore[assignment]

_FOREIGN = ("TGP_", "LAMBDA_", "TS_", "TAILSCALE_", "WEBHOOK_", "K8S_AUTH", "KUBE")


def answers(url: str, _control_planes: t.Sequence[str], **_how: t.Any) -> list[t.Any]:
    """A control plane that can be reached."""
    return [endpoint_check.Reached(endpoint_check.API, *endpoint_check.endpoint(url))]


def isolate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that are called from now on know nothing of the caller's environment, and keep their files in the folder."""
    for name in [one for one in os.environ if one.startswith(_FOREIGN) or one.endswith("_GPU_COUNT")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(folder / "pace"))
    monkeypatch.setenv("TGP_STATE_DIR", str(folder / "state"))  # of modules that are called beside the fleet's
    if endpoint_check is not None:
        monkeypatch.setattr(endpoint_check, "look", answers)  # the sandbox's API server has no address of its own here


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Callable[..., Rig]]:
    """``build(speed=..., **scenario keys)``: a started sandbox."""
    isolate(tmp_path, monkeypatch)
    built: list[Rig] = []

    def make(**options: t.Any) -> Rig:
        built.append(Rig(tmp_path, **options))
        return built[-1]

    yield make
    for one in built:
        one.close()


@pytest.fixture
def rig(build: t.Callable[..., Rig]) -> Rig:
    """The usual one."""
    return build()
