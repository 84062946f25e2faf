# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command lines that are not ours drive the emulator over a real socket: ``lai`` (PyPI lambda-ai-cloud-api-client, made from Lambda's
OpenAPI document 1.8.3), ``lambda-cloud`` (PyPI lcloud-cli, written for 1.10) and ``lambda-cli`` (PyPI lambda-cloud-cli)."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shlex
import subprocess
import typing as t

import pytest

from sandbox.world import Machine

from .stands import KEY, LambdaStand
from .witness import Home, Notes, home, serving

pytestmark = pytest.mark.witness
TELLING = ("id", "name", "status", "ip", "hostname", "tags", "instance_type_name", "jupyter_token")
CLOUD_INIT = "#cloud-config\npackages: [jq]\n"
# its one address is the default of a parameter, so it is changed before the program is imported, which runs it
LAMBDA_CLI = """
import sys
from lambda_cloud_cli import lambda_api_client
lambda_api_client.LambdaAPIClient.__init__.__defaults__ = (sys.argv.pop(1),)
from lambda_cloud_cli import cli
"""


@dataclasses.dataclass
class Command:
    """One foreign command line in front of one emulator."""

    stand: LambdaStand
    who: Home
    notes: Notes
    words: list[str]
    variables: dict[str, str]

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = self.who.environment(**{**self.variables, "COLUMNS": "9999", **variables})
        command = [*self.words, *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.notes.add(shlex.join(words), done.stdout + done.stderr)
        return done

    def said(self, *words: str, **variables: str) -> str:
        done = self.run(*words, **variables)
        return done.stdout + done.stderr

    def json(self, *words: str) -> t.Any:
        done = self.run(*words)
        assert done.returncode == 0 and done.stdout, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    def machine(self) -> Machine:
        (found,) = self.stand.world.machines.values()
        return found

    def until(self, state: str) -> None:
        for _turn in range(500):
            if self.machine().state == state:
                return
            self.stand.world.clock.sleep(5)
        raise AssertionError(f"it is {self.machine().state}")


Commands = t.Callable[..., Command]


@pytest.fixture
def command(lambda_stand: LambdaStand, tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> t.Iterator[Commands]:
    """Makes the command line of ``package``, whose program is ``words``; the environment's ``{url}`` is the emulator's."""
    lambda_stand.world.rate_limits = False  # each call is a process, and none knows of the others
    noted: list[Notes] = []
    with serving(lambda_stand.app) as url:

        def make(package: str, *words: str, **variables: str) -> Command:
            who = home(package)
            noted.append(Notes(request.node.name, who, url, TELLING))
            places = {name: value.format(url=url) for name, value in variables.items()}
            program = [who.program(words[0]), *(word.format(url=url) for word in words[1:])]
            return Command(lambda_stand, who, noted[-1], program, {"HOME": str(tmp_path), **places})

        yield make
        for notes in noted:
            notes.close()


@pytest.fixture
def lai(command: Commands) -> Command:
    return command("lambda-ai-cloud-api-client==2.4.1", "lai", LAMBDA_CLOUD_BASE_URL="{url}", LAMBDA_CLOUD_TOKEN=KEY)


@pytest.fixture
def lcloud(command: Commands) -> Command:
    settings = {"LAMBDA_CLOUD_API_URL": "{url}/api/v1", "LAMBDA_API_KEY": KEY, "LAMBDA_CLOUD_MIN_INTERVAL": "0"}
    return command("lcloud-cli==0.1.0", "lambda-cloud", "-o", "json", **settings)


@pytest.fixture
def lambda_cli(command: Commands) -> Command:
    return command("lambda-cloud-cli==0.1.36", "python", "-c", LAMBDA_CLI, "{url}/api/v1", API_KEY=KEY)


def test_a_command_reaches_the_loopback_interface_only(lcloud: Command) -> None:
    """The address is one of those kept for documents."""
    assert "the witness may not look up 192.0.2.1" in lcloud.said("types", "list", LAMBDA_CLOUD_API_URL="http://192.0.2.1/api/v1")
    assert "the witness may not look up cloud.lambda.ai" in lcloud.said("types", "list", LAMBDA_CLOUD_API_URL="")


def test_the_life_of_a_machine_by_lai(lai: Command, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "user-data"
    file.write_text(CLOUD_INIT)
    types = {one["instance_type"]["name"]: one for one in lai.json("types", "--json")}
    assert types["gpu_1x_a10"]["instance_type"]["price_cents_per_hour"] == 129
    assert {image["family"] for image in lai.json("images", "--json")} >= {"ubuntu-24-04", "lambda-stack-24-04"}
    assert [key["name"] for key in lai.json("keys", "--json")] == ["tgp"]
    wanted = (
        "--instance-type",
        "gpu_1x_a10",
        "--region",
        "us-east-1",
        "--ssh-key",
        "tgp",
        "--name",
        "witness",
        "--hostname",
        "witness-1",
    )
    more = ("--image-family", "ubuntu-24-04", "--tag", "tgp:cluster=lab", "--user-data-file", str(file), "--json")
    made = lai.json("start", *wanted, *more)
    assert (made["name"], made["tags"]) == ("witness", [{"key": "tgp:cluster", "value": "lab"}])
    assert lai.machine().payload == CLOUD_INIT and lai.machine().hostname == "witness-1"
    assert [one["id"] for one in lai.json("ls", "--json")] == [made["id"]]
    lai.until("active")
    shown = lai.json("get", made["id"])
    assert shown["status"] == "active" and shown["ip"] and shown["actions"]["restart"]["available"] is True
    assert lai.json("rename", made["id"], "other")["name"] == "other"
    assert [one["id"] for one in lai.json("restart", made["id"])] == [made["id"]]
    lai.until("active")
    assert [one["status"] for one in lai.json("stop", made["id"])] == ["terminating"]
    assert lai.stand.billed() == 0


def test_refusals_by_lai(lai: Command) -> None:
    sold_out = ("start", "--instance-type", "gpu_1x_a10", "--region", "us-west-1", "--ssh-key", "tgp", "--name", "x")
    assert lai.run(*sold_out).returncode != 0
    long = ("start", "--instance-type", "gpu_1x_a10", "--region", "us-east-1", "--ssh-key", "tgp", "--name", "x" * 65)
    assert "400" in lai.said(*long)
    nobody = ("start", "--instance-type", "gpu_1x_a10", "--region", "us-east-1", "--ssh-key", "nobody", "--name", "x")
    assert "object-does-not-exist" in lai.said(*nobody)
    assert "401" in lai.said("ls", LAMBDA_CLOUD_TOKEN="secret_wrong")
    assert lai.stand.world.machines == {}


def test_the_life_of_a_machine_by_lcloud(lcloud: Command, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "user-data"
    file.write_text(CLOUD_INIT)
    types = {one["instance_type"]["name"]: one for one in lcloud.json("types", "list")}
    assert [place["name"] for place in types["gpu_1x_a10"]["regions_with_capacity_available"]] == ["us-east-1"]
    assert {"name": "us-east-1", "description": "Virginia, USA"} in lcloud.json("regions", "list")
    assert lcloud.json("images", "list", "--region", "us-east-1", "--family", "ubuntu-24-04")
    wanted = (
        "--type",
        "gpu_1x_a10",
        "--region",
        "us-east-1",
        "--ssh-key",
        "tgp",
        "--name",
        "witness",
        "--user-data",
        str(file),
        "--yes",
    )
    (made,) = lcloud.json("instances", "launch", *wanted, "--tag", "tgp:cluster=lab")["instance_ids"]
    assert lcloud.machine().payload == CLOUD_INIT
    lcloud.until("active")
    shown = lcloud.json("instances", "get", made)
    assert (shown["status"], shown["tags"]) == ("active", [{"key": "tgp:cluster", "value": "lab"}])
    assert lcloud.json("instances", "rename", made, "--name", "other") == {"id": made, "name": "other"}
    assert [one["name"] for one in lcloud.json("instances", "list")] == ["other"]
    assert [one["id"] for one in lcloud.json("instances", "restart", made)] == [made]
    ended = lcloud.json("instances", "terminate", made, "--yes")["terminated_instances"]
    assert [one["status"] for one in ended] == ["terminating"] and lcloud.stand.billed() == 0


def test_keys_file_systems_and_rules_by_lcloud(lcloud: Command) -> None:
    public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFNhbmRib3hLZXlXaXRob3V0UHJpdmF0ZVBhcnQy other"
    key = lcloud.json("ssh-keys", "add", "--name", "other", "--public-key", public)
    assert [one["name"] for one in lcloud.json("ssh-keys", "list")] == ["tgp", "other"]
    lcloud.run("ssh-keys", "delete", key["id"], "--yes")
    assert [one["name"] for one in lcloud.json("ssh-keys", "list")] == ["tgp"]
    volume = lcloud.json("filesystems", "create", "--name", "data", "--region", "us-east-1")
    (shown,) = lcloud.json("filesystems", "list")
    assert (shown["id"], shown["mount_point"], shown["is_in_use"]) == (volume["id"], "/lambda/nfs/data", False)
    lcloud.run("filesystems", "delete", volume["id"], "--yes")
    assert lcloud.json("filesystems", "list") == []


def test_refusals_by_lcloud(lcloud: Command) -> None:
    place = ("--region", "us-west-1", "--ssh-key", "tgp", "--yes")
    assert "insufficient-capacity" in lcloud.said("instances", "launch", "--type", "gpu_1x_a10", *place)
    assert "object-does-not-exist" in lcloud.said("instances", "get", "0" * 32)
    assert "invalid-api-key" in lcloud.said("instances", "list", LAMBDA_API_KEY="secret_wrong")
    assert lcloud.stand.world.machines == {}


def test_the_life_of_a_machine_by_lambda_cli(lambda_cli: Command) -> None:
    """It authenticates with Basic, and prints for people only."""
    assert "gpu_1x_a10" in lambda_cli.said("list-instance-types")
    place = ("--instance-type", "gpu_1x_a10", "--ssh-key-name", "tgp", "--name", "witness", "--yes")
    assert "Not enough capacity" in lambda_cli.said("launch-instance", "--region-name", "us-west-1", *place)
    said = lambda_cli.said("launch-instance", "--region-name", "us-east-1", *place)
    assert "Instance launched successfully" in said and lambda_cli.machine().id in said
    lambda_cli.until("active")
    shown = json.loads(lambda_cli.run("get-instance", "--instance-name", "witness", "--json").stdout)["data"]
    assert (shown["status"], shown["name"]) == ("active", "witness")
    listed = lambda_cli.said("list-instances", "--region", "us-east-1")
    assert re.search(rf"{shown['id']}\s+witness\s+gpu_1x_a10", listed) and "1 instance(s)" in listed
    assert "renamed successfully" in lambda_cli.said("update-instance-name", "--instance-name", "witness", "--new-name", "other")
    assert "already exists" in lambda_cli.said(
        "launch-instance", "--region-name", "us-east-1", *place[:-3], "--name", "other", "--yes"
    )
    assert "Terminated 1 instance(s)" in lambda_cli.said("terminate-instance", "--instance-name", "other", "--yes")
    assert lambda_cli.stand.billed() == 0
    assert "API key was invalid" in lambda_cli.said("get-instance", "--instance-id", shown["id"], API_KEY="secret_wrong")
