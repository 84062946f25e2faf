# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pathlib
import typing as t

import pytest

from .stands import LambdaStand, WebhookStand


@pytest.fixture(autouse=True)
def own_pace(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for calls that another one made, and none sees the developer's credentials."""
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(tmp_path))
    for name in ("LAMBDA_API_KEY", "LAMBDA_LABS_API_KEY", "LAMBDA_API_URL", "WEBHOOK_URL", "WEBHOOK_AUTH_VALUE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=[LambdaStand, WebhookStand], ids=["lambda", "webhook"])
def stand(request: pytest.FixtureRequest) -> t.Iterator[LambdaStand | WebhookStand]:
    """Every cloud in turn."""
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
