# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import ENTRIES

from .stands import LambdaStand, Stand, WebhookStand
from .stands_gcp import GcpStand
from .stands_paperspace import PaperspaceStand
from .stands_runpod import RunpodStand
from .stands_vast import VastStand
from .stands_vultr import VultrStand


@pytest.fixture(autouse=True)
def own_pace(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for calls that another one made, and none sees the developer's credentials."""
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TGP_STATE_DIR", str(tmp_path / "state"))  # remembered offers and prices, too
    for entry in ENTRIES.values():
        for name in (one for option in entry.spec for one in entry.variables(option)):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture(
    params=[GcpStand, LambdaStand, PaperspaceStand, RunpodStand, VastStand, VultrStand, WebhookStand], ids=lambda kind: kind.service
)
def stand(request: pytest.FixtureRequest, record_property: t.Callable[[str, object], None]) -> t.Iterator[Stand]:
    """Every cloud in turn. The property is counted at the end of the run."""
    record_property("cloud", request.param.service)
    made = request.param()
    yield made
    made.close()


@pytest.fixture
def lambda_stand() -> t.Iterator[LambdaStand]:
    made = LambdaStand()
    yield made
    made.close()


@pytest.fixture
def webhook_stand() -> t.Iterator[WebhookStand]:
    made = WebhookStand()
    yield made
    made.close()


@pytest.fixture
def runpod_stand() -> t.Iterator[RunpodStand]:
    made = RunpodStand()
    yield made
    made.close()


@pytest.fixture
def paperspace_stand() -> t.Iterator[PaperspaceStand]:
    made = PaperspaceStand()
    yield made
    made.close()


@pytest.fixture
def vast_stand() -> t.Iterator[VastStand]:
    made = VastStand()
    yield made
    made.close()


@pytest.fixture
def gcp_stand() -> t.Iterator[GcpStand]:
    made = GcpStand()
    yield made
    made.close()


@pytest.fixture
def vultr_stand() -> t.Iterator[VultrStand]:
    made = VultrStand()
    yield made
    made.close()
