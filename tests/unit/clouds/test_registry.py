# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From names to clients."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors, redact
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudChoice, InstanceState, Lane, Machine
from ansible_collections.tgp.gpu.plugins.module_utils.providers import registry
from ansible_collections.tgp.gpu.plugins.module_utils.providers.base import Wanted
from ansible_collections.tgp.gpu.plugins.module_utils.providers.lambda_.cloud import LambdaCloud
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.cloud import WebhookCloud

DUMMY = """
from ansible_collections.tgp.gpu.plugins.module_utils.providers.base import NothingBeside
from ansible_collections.tgp.gpu.plugins.module_utils.providers.base import Entry, text_option
from ansible_collections.tgp.gpu.plugins.module_utils.model import Capability, Lane


class Dummy(NothingBeside):
    def instances(self):
        return ["one"]

    def close(self):
        pass


ENTRY = Entry(
    facts=Capability(cloud="dummy", lanes=(Lane.KUBELET,)),
    connect=lambda wanted: Dummy(),
    spec={"dummy_key": text_option("DUMMY_KEY", no_log=True)},
    key="dummy_key",
)
"""
KEY = "secret_unit_0123456789abcdef"
MACHINE = Machine("rack-1", 1, "http://power.test/up", "http://power.test/down")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = [one for entry in registry.ENTRIES.values() for option in entry.spec for one in entry.variables(option)]
    for name in [*variables, *(name for name in os.environ if name.endswith("_GPU_COUNT"))]:
        monkeypatch.delenv(name, raising=False)


def test_every_known_cloud_has_a_record() -> None:
    assert set(registry.ENTRIES) == {"gcp", "lambda", "paperspace", "runpod", "vast", "vultr", "webhook"}
    for name, entry in registry.ENTRIES.items():
        record = entry.facts
        assert entry.name == name and record.lanes and record.credential_env and record.states and record.lane_reason
        assert entry.key in entry.spec and set(entry.variables(entry.key)) == set(record.credential_env)
    assert registry.CAPABILITIES["runpod"].lanes == (Lane.SERVICE,)
    assert Lane.TAKEOVER not in registry.CAPABILITIES["lambda"].lanes
    assert registry.CAPABILITIES["webhook"].lanes == (Lane.TALOS, Lane.KUBELET) and not registry.CAPABILITIES["webhook"].rented


def test_a_module_process_is_packed_with_every_cloud() -> None:
    folder = pathlib.Path(str(registry.__file__)).parent
    packed = {one.__name__.split(".")[-2] for one in registry._PACKED}
    assert packed == {path.parent.name for path in folder.glob("*/cloud.py")}


@pytest.mark.parametrize("name", sorted(registry.ENTRIES))
def test_only_states_that_end_the_bill_are_terminal(name: str) -> None:
    facts = registry.CAPABILITIES[name]
    for word, meaning in facts.states.items():
        assert (word in facts.terminal) == (meaning.state is InstanceState.TERMINATED)
    assert facts.read_state("a word that nobody documented") is InstanceState.UNKNOWN


def test_what_is_on_its_way_out_is_not_gone_yet() -> None:
    """Its Node and its books are kept until it is."""
    ending = {
        (name, word)
        for name, facts in registry.CAPABILITIES.items()
        for word in facts.states
        if word in ("terminating", "stopping")
    }
    assert ("lambda", "terminating") in ending
    for name, word in ending:
        assert word not in registry.CAPABILITIES[name].terminal
        assert registry.CAPABILITIES[name].read_state(word) is not InstanceState.TERMINATED


@pytest.mark.parametrize("name", ["lambda", "lambda-labs", "LambdaLabs"])
def test_lambda_by_option(name: str) -> None:
    cloud = registry.connect(name, Task({"lambda_api_key": KEY, "lambda_api_url": "https://lambda.test"}))
    assert isinstance(cloud, LambdaCloud)


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
def test_plain_http_is_for_this_machine(host: str) -> None:
    assert isinstance(registry.connect("lambda", Task({"lambda_api_key": KEY, "lambda_api_url": f"http://{host}"})), LambdaCloud)


@pytest.mark.parametrize("variable", ["LAMBDA_API_KEY", "LAMBDA_LABS_API_KEY"])
def test_lambda_by_environment(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, KEY)
    assert isinstance(registry.connect("lambda", Task({})), LambdaCloud)


@pytest.mark.parametrize("given", [f"{KEY}\n", f" {KEY}", f"{KEY}\r\n"])
def test_a_key_from_a_file_works_with_its_line_end_and_is_masked(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    entry = registry.ENTRIES["lambda"]
    assert entry.credential(Wanted(Task({"lambda_api_key": given}))) == KEY
    monkeypatch.setenv("LAMBDA_API_KEY", given)
    assert entry.credential(Wanted(Task({}))) == KEY
    monkeypatch.setenv("LAMBDA_API_KEY", " \n")
    with pytest.raises(errors.Unauthorized):
        entry.credential(Wanted(Task({"lambda_api_key": "\n"})))
    with pytest.raises(errors.Unauthorized):
        registry.connect("lambda", Task({}))
    redact.register("secret-with-a-line-end\n")
    assert redact.redact("it is 'secret-with-a-line-end\\n'") == f"it is '{redact.MASK}\\n'"


def test_a_credential_from_a_secret_is_enough() -> None:
    assert isinstance(registry.connect("lambda", Task({}), credential=KEY), LambdaCloud)


def test_no_key_names_cloud_option_and_variables() -> None:
    with pytest.raises(errors.Unauthorized) as caught:
        registry.connect("lambda", Task({}))
    for word in ("lambda:", "lambda_api_key", "LAMBDA_API_KEY", "LAMBDA_LABS_API_KEY", "credentialsRef"):
        assert word in str(caught.value)


@pytest.mark.parametrize(("name", "words"), [("lamda", "lambda"), ("aws", "aws")])
def test_unknown_clouds(name: str, words: str) -> None:
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


def test_S1_14_a_new_cloud_is_found_by_its_file(tmp_path: pathlib.Path) -> None:
    """A process of its own, because what is found is found when the registry is first loaded."""
    package = "ansible_collections.tgp.gpu.plugins.module_utils.providers"
    (tmp_path / "dummy").mkdir()
    (tmp_path / "dummy" / "__init__.py").touch()
    (tmp_path / "dummy" / "cloud.py").write_text(DUMMY, encoding="utf-8")
    code = (
        f"import {package} as providers; providers.__path__.append({str(tmp_path)!r}); "
        f"from {package} import registry; from {package}.query_all import survey; "
        "from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task; "
        "print(survey(Task({}), ['dum-my'], lambda cloud: cloud.instances()).found, sorted(registry.CLOUDS_SPEC)[:1])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['one'] ['dummy_key']"
