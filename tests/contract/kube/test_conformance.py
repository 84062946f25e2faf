# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulator answers the probes that a real control plane answers."""

from __future__ import annotations

import typing as t

import httpx
import pytest

from .probes import PROBES


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.__name__.removeprefix("probe_"))
def test_emulator(probe: t.Callable[[httpx.Client, str], None], kube: httpx.Client, space: str) -> None:
    probe(kube, space)
