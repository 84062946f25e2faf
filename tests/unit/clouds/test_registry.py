# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From names to clients."""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils import errors
from ansible_collections.tgp.gpu.plugins.module_utils.clouds import lambda_cloud, registry, webhook
from ansible_collections.tgp.gpu.plugins.module_utils.clouds.lambda_cloud import LambdaCloud
from ansible_collections.tgp.gpu.plugins.module_utils.clouds.options import ENVIRONMENT
from ansible_collections.tgp.gpu.plugins.module_utils.clouds.survey import survey
from ansible_collections.tgp.gpu.plugins.module_utils.clouds.webhook import WebhookCloud
from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import CLOUD_SETTINGS
from ansible_collections.tgp.gpu.plugins.module_utils.fleet.cloud_names import known_clouds
from ansible_collections.tgp.gpu.plugins.module_utils.fleet.model import Capability, CloudChoice, Lane, Machine
from ansible_collections.tgp.gpu.plugins.module_utils.task import Task

KEY = "secret_unit_0123456789abcdef"
MACHINE = Machine("rack-1", 1, "http://power.test/up", "http://power.test/down")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sum(ENVIRONMENT.values(), ()), *(name for name in os.environ if name.endswith("_GPU_COUNT"))]:
        monkeypatch.delenv(name, raising=False)


def test_every_known_cloud_has_a_record() -> None:
    assert set(registry.CAPABILITIES) == set(known_clouds())
    assert set(registry.CLIENTS) == {"lambda", "webhook"}
    for name, record in registry.CAPABILITIES.items():
        assert record.cloud == name and record.lanes and record.credential_env
    assert registry.CAPABILITIES["runpod"].lanes == (Lane.SERVICE,)
    assert Lane.TAKEOVER not in registry.CAPABILITIES["lambda"].lanes
    assert registry.CAPABILITIES["webhook"].lanes == (Lane.TALOS, Lane.KUBELET) and not registry.CAPABILITIES["webhook"].rented


@pytest.mark.parametrize("name", ["lambda", "lambda-labs", "LambdaLabs"])
def test_lambda_by_option(name: str) -> None:
    cloud = registry.connect(name, Task({"lambda_api_key": KEY, "lambda_api_url": "http://lambda.test"}))
    assert isinstance(cloud, LambdaCloud)


@pytest.mark.parametrize("variable", ["LAMBDA_API_KEY", "LAMBDA_LABS_API_KEY"])
def test_lambda_by_environment(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, KEY)
    assert isinstance(registry.connect("lambda", Task({})), LambdaCloud)


def test_a_credential_from_a_secret_is_enough() -> None:
    assert isinstance(registry.connect("lambda", Task({}), credential=KEY), LambdaCloud)


def test_no_key_names_cloud_option_and_variables() -> None:
    with pytest.raises(errors.Unauthorized) as caught:
        registry.connect("lambda", Task({}))
    for word in ("lambda:", "lambda_api_key", "LAMBDA_API_KEY", "LAMBDA_LABS_API_KEY", "credentialsRef"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"), [("runpod", "no client"), ("vast.ai", "no client"), ("lamda", "lambda"), ("aws", "aws")]
)
def test_clouds_without_client_and_unknown_ones(name: str, words: str) -> None:
    with pytest.raises(errors.InvalidInput, match=words):
        registry.connect(name, Task({}))


def test_webhook_machines_come_from_class_option_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    choice = CloudChoice("webhook", machines=(MACHINE,), settings={"payload": "body"})
    task = Task({}, warn=warnings.append)

    def names(cloud: t.Any) -> list[str]:
        assert isinstance(cloud, WebhookCloud)
        return [one.name for one in cloud.instances()]

    assert names(registry.connect("webhook", task, choice=choice)) == ["rack-1"]
    entry = {"name": "rack-2", "gpu_count": 2, "scale_up_endpoint": "/up", "scale_down_endpoint": "/down", "gpu_type": None}
    assert names(registry.connect("webhook", Task({"webhook_machines": [entry], "webhook_url": "http://power.test"}))) == ["rack-2"]
    for ending, value in (
        ("NAME", "rack-3"),
        ("GPU_COUNT", "1"),
        ("SCALE_UP_ENDPOINT", "http://p/u"),
        ("SCALE_DOWN_ENDPOINT", "http://p/d"),
    ):
        monkeypatch.setenv(f"A_{ending}", value)
    monkeypatch.setenv("B_GPU_COUNT", "1")
    assert names(registry.connect("webhook", task)) == ["rack-3"]
    assert "B_NAME" in warnings[0]


def test_D06_documents_and_clients_agree_on_the_settings_of_a_class() -> None:
    clients = {"lambda": lambda_cloud.SETTINGS, "webhook": webhook.SETTINGS}
    assert {cloud: frozenset(settings) for cloud, settings in CLOUD_SETTINGS.items()} == clients


def test_S1_14_a_new_cloud_is_a_client_and_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Capability(cloud="dummy", lanes=(Lane.KUBELET,))

    class Dummy:
        facts = record

        def instances(self) -> list[str]:
            return ["one"]

        def close(self) -> None:
            """Nothing to close."""

    monkeypatch.setitem(registry.CAPABILITIES, "dummy", record)
    monkeypatch.setitem(registry.CLIENTS, "dummy", lambda wanted: t.cast(t.Any, Dummy()))
    assert registry.connect("dummy", Task({})).facts is record
    assert survey(Task({}), ["dummy"], lambda cloud: cloud.instances()).found == ["one"]


def test_connecting_one_cloud_loads_no_other() -> None:
    package = "ansible_collections.tgp.gpu.plugins.module_utils"
    code = (
        f"import sys; from {package}.clouds.registry import connect; from {package}.task import Task; "
        f"connect('lambda', Task({{'lambda_api_key': 'x' * 20}})); "
        f"print([name for name in sys.modules if name.startswith('{package}.clouds.webhook')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
