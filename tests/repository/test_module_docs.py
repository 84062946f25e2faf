# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module documents is what it takes and returns, and Ansible finds all of them."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml
from ansible_collections.tgp.gpu.plugins.action import in_process
from ansible_collections.tgp.gpu.plugins.module_utils.observe.options import FLEET_SPEC

from .test_layers import imports
from .tree import ROOT, below

PACKAGE = "ansible_collections.tgp.gpu.plugins"
MODULES = sorted(path.stem for path in below("plugins/modules", suffix=".py"))
RUNTIME = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))
CORE = "ansible-core >= " + RUNTIME["requires_ansible"].removeprefix(">=").removesuffix(".0")
ON_ITS_TARGET = {"wireguard_peer"}  # is about the machine that the task is sent to
LAZY = re.compile(r'lazy\(f?"(\w+)[\w.{}]*"(?:, "([\w-]+)")?\)')
DESCRIBED = {"type": "str", "elements": None, "required": False, "choices": None, "default": None, "aliases": None}


@functools.cache
def ansible_doc(*arguments: str) -> t.Any:
    command = [str(Path(sys.executable).parent / "ansible-doc"), "--json", *arguments]
    run = subprocess.run(command, cwd=ROOT, env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def documentation() -> dict[str, t.Any]:
    """Module → its documentation with all fragments, as Ansible itself reads it."""
    found = ansible_doc("-t", "module", *(f"tgp.gpu.{one}" for one in MODULES))
    return {one: found[f"tgp.gpu.{one}"] for one in MODULES}


def module(name: str) -> t.Any:
    return importlib.import_module(f"{PACKAGE}.modules.{name}")


def differences(where: str, spec: t.Mapping[str, t.Any], described: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    for name in sorted({*spec, *described}):
        if name not in spec or name not in described:
            yield f"{where}.{name} is {'documented, but not taken' if name in described else 'taken, but not documented'}"
            continue
        option, text = spec[name], described[name]
        for key, usual in DESCRIBED.items():
            said, done = text.get(key, usual), option.get(key, usual)
            if key == "default" and isinstance(done, (list, dict)) and not done:
                said = said or done
            if isinstance(done, tuple):
                done = list(done)
            if said != done:
                yield f"{where}.{name}: {key} is documented as {said!r} and is {done!r}"
        fallback = option.get("fallback")
        if fallback:
            prose = json.dumps(text.get("description"))
            yield from (
                f"{where}.{name}: {variable} is read, but not documented"
                for variable in fallback[1]
                if f"E({variable})" not in prose
            )
        yield from differences(f"{where}.{name}", option.get("options") or {}, text.get("suboptions") or {})


def test_options_are_documented_as_they_are() -> None:
    docs = documentation()
    found = [line for one in MODULES for line in differences(one, module(one).SPEC["argument_spec"], docs[one]["doc"]["options"])]
    assert found == []


def test_whether_check_mode_is_supported_is_said() -> None:
    docs = documentation()
    for one in MODULES:
        supported = module(one).SPEC.get("supports_check_mode", False)
        assert docs[one]["doc"]["attributes"]["check_mode"]["support"] == ("full" if supported else "none"), one


def action_plugin(one: str) -> type[in_process.ActionModule] | None:
    """The class that runs a module's tasks: of a file of its name, or of its route. None: Ansible sends the module to the task's host."""
    route = RUNTIME["plugin_routing"]["modules"].get(one, {}).get("action_plugin", f"tgp.gpu.{one}")
    file = ROOT / "plugins" / "action" / f"{route.rpartition('.')[2]}.py"
    return importlib.import_module(f"{PACKAGE}.action.{file.stem}").ActionModule if file.is_file() else None


def test_where_a_module_runs_is_said() -> None:
    """What runs without a connection uses neither host nor user of the task, wherever ``delegate_to`` sends it."""
    assert {one for one in MODULES if action_plugin(one) is None} == ON_ITS_TARGET
    for one in MODULES:
        plugin = action_plugin(one)
        connects = plugin is None or plugin._requires_connection
        expected = {
            "action": "none" if plugin is None else "full",
            "async": "full" if plugin is None or plugin._supports_async else "none",
            "platform": "full",
            **dict.fromkeys(("become", "connection", "delegation"), "full" if connects else "none"),
        }
        told = documentation()[one]["doc"]["attributes"]
        assert {name: told.get(name, {}).get("support") for name in expected} == expected, one
        assert plugin is None or plugin._supports_check_mode == (told["check_mode"]["support"] == "full"), one
        assert told["diff_mode"]["support"] == "none" or not one.endswith("_info"), one


#: libraries that are in no list of requirements, since few need them
OPTIONAL = {"apprise": "apprise >= 1.9", "matplotlib": "matplotlib >= 3.8", "prometheus-client": "prometheus-client >= 0.20"}


def libraries(entry: Path) -> set[str]:
    """What a plugin's code can load from elsewhere, by the names of requirements.txt. Jinja2 comes with ansible-core in no older version."""
    found: set[str] = set()
    seen: set[Path] = set()
    left = [entry]
    while left:
        path = left.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        lines = [line for line in imports(path) if not line.typing]
        left += [place for line in lines if line.target for place in (line.target.with_suffix(".py"), line.target / "__init__.py")]
        found |= {"tzdata" for line in lines if line.foreign == "zoneinfo"}
        found |= {package or name for name, package in LAZY.findall(path.read_text(encoding="utf-8"))}
    return found - {"jinja2"}


def required(doc: t.Mapping[str, t.Any]) -> set[str]:
    return {spaced(line.partition(" (")[0]) for line in doc["requirements"]}


def test_libraries_that_a_module_needs_are_said() -> None:
    versions = {line.split()[0]: line for line in map(spaced, (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines())}
    docs = {f"modules/{one}.py": documentation()[one]["doc"] for one in MODULES if one not in ON_ITS_TARGET}
    docs["inventory/nodes.py"] = ansible_doc("-t", "inventory", "tgp.gpu.nodes")["tgp.gpu.nodes"]["doc"]
    for file, doc in docs.items():
        needed = {versions.get(name, OPTIONAL.get(name, "")) for name in libraries(ROOT / "plugins" / file)}
        assert required(doc) == {CORE, *needed}, file


def test_the_core_that_a_plugin_needs_is_said() -> None:
    """What runs on its target and the lookup need no library besides."""
    lookup = ansible_doc("-t", "lookup", "tgp.gpu.variables")["tgp.gpu.variables"]["doc"]
    assert required(lookup) == {CORE}
    for one in ON_ITS_TARGET:
        assert CORE in required(documentation()[one]["doc"]), one


def spaced(requirement: str) -> str:
    """``httpx>=0.28,<1`` as the documentation has it, in lower case."""
    return re.sub(r"\s*([<>=]+)\s*", r" \1 ", requirement.lower())


def test_every_module_describes_what_it_returns_and_shows_how_it_is_used() -> None:
    docs = documentation()
    for one in MODULES:
        assert docs[one]["return"], one
        for key, value in docs[one]["return"].items():
            assert value["description"] and value["returned"] and value["type"], f"{one}.{key}"
        tasks = yaml.safe_load(docs[one]["examples"])
        assert any(f"tgp.gpu.{one}" in task for task in tasks), one
        assert all("name" in task for task in tasks), one


def test_ansible_doc_lists_every_module() -> None:
    listed = ansible_doc("-t", "module", "-l", "tgp.gpu")
    assert sorted(listed) == [f"tgp.gpu.{one}" for one in MODULES]
    assert all(listed.values())


def test_the_inventory_is_documented() -> None:
    found = ansible_doc("-t", "inventory", "tgp.gpu.nodes")
    assert found["tgp.gpu.nodes"]["doc"]["options"]


def test_every_module_is_in_the_group_and_routed_to_the_worker() -> None:
    assert sorted(RUNTIME["action_groups"]["all"]) == MODULES
    assert sorted(RUNTIME["action_groups"]["fleet"]) == [one for one in MODULES if one.startswith("fleet_")]
    routed = RUNTIME["plugin_routing"]["modules"]
    own = {path.stem for path in (ROOT / "plugins" / "action").glob("*.py")}  # some have an action plugin of their name
    assert sorted(routed) == [one for one in MODULES if one not in own | ON_ITS_TARGET]
    assert {json.dumps(route) for route in routed.values()} == {json.dumps({"action_plugin": "tgp.gpu.in_process"})}


FRAGMENTS = {  # the options of a service are those of one documentation fragment
    **{service: service for service in ("kubernetes", "tailscale", "talos", "webhook")},
    **{cloud: f"{cloud}_cloud" for cloud in ("gcp", "lambda", "paperspace", "runpod", "vast", "vultr")},
}


def options_of(group: str) -> set[str]:
    """What ``module_defaults`` of the group may hold."""
    if group == "image_factory":
        return {"image_factory_url"}
    if group == "fleet":
        return {*FLEET_SPEC}
    documented = importlib.import_module(f"{PACKAGE}.doc_fragments.{FRAGMENTS[group]}").ModuleDocFragment
    return set(yaml.safe_load(documented.DOCUMENTATION)["options"])


def test_a_group_of_a_service_holds_every_module_that_takes_its_options() -> None:
    """A key of module_defaults that one member does not take would fail each task of that member."""
    takes = {one: set(module(one).SPEC["argument_spec"]) for one in MODULES}
    groups = {name: members for name, members in RUNTIME["action_groups"].items() if name not in ("all", "fleet")}
    assert set(groups) == {*FRAGMENTS, "image_factory"}
    for group, members in groups.items():
        assert members == [one for one in MODULES if options_of(group) <= takes[one]], group
    for one in RUNTIME["action_groups"]["fleet"]:
        assert options_of("fleet") - takes[one] == set(), one


def test_the_groups_and_their_options_are_told() -> None:
    text = (ROOT / "docs" / "reference" / "clouds.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `tgp\.gpu\.(\w+)` \| (.+) \|$", text, re.MULTILINE)
    assert {group for group, _cell in rows} | {"all"} == set(RUNTIME["action_groups"])
    for group, cell in rows:
        assert group == "fleet" or set(re.findall(r"`(\w+)`", cell)) == options_of(group), group


def test_module_defaults_of_a_group_reach_its_modules_and_messages_name_the_module(tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    tasks = [
        {"tgp.gpu.instance_info": {"clouds": ["lambda"]}, "ignore_errors": True},
        {"tgp.gpu.lambda_instance": {"name": "x", "instance_type": "gpu_1x_a10", "sise": 1}},
    ]
    defaults = {"group/tgp.gpu.lambda": {"lambda_api_url": "lambda.example:8443", "lambda_api_key": "k"}}
    play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "module_defaults": defaults, "tasks": tasks}]))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "-c", "local", str(play)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path).stdout
    assert "lambda_api_url must be scheme, host and port, got an address without a scheme" in " ".join(said.split())
    assert "Unsupported parameters for (tgp.gpu.lambda_instance) module: sise" in said and "in_process" not in said


def test_roles_and_playbooks_are_all_documented() -> None:
    for folder in sorted((ROOT / "roles").iterdir()):
        specs = yaml.safe_load((folder / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"]
        assert specs["short_description"] and (folder / "README.md").read_text(encoding="utf-8").strip(), folder.name
        defaults = folder / "defaults" / "main.yml"
        known = yaml.safe_load(defaults.read_text(encoding="utf-8")) if defaults.exists() else {}
        assert set(known) <= set(specs.get("options") or {}), folder.name
    for path in below("playbooks", suffix=".yml"):
        head = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        assert any(f"ansible-playbook tgp.gpu.{path.stem} " in f"{line} " for line in head), path.name
        assert "ansible-playbook playbooks/" not in "".join(head), path.name
