# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Live GPU nodes as Ansible hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nodes
short_description: GPU machines of tgp.gpu as hosts
description:
  - Brings claims, cloud instances, mesh devices and Kubernetes Nodes together by name; every machine of ours becomes a host.
  - Groups are made for pool, class, cloud, region, GPU model, phase and lane, prefixed C(pool_), C(class_), C(cloud_), C(region_),
    C(gpu_), C(phase_) and C(lane_), all below C(gpu_nodes).
  - "Variables are C(tgp_name), C(tgp_pool), C(tgp_cloud), C(tgp_phase), C(tgp_ip), C(tgp_mesh_addresses) and so on, what M(tgp.gpu.fleet_info)
    returns of a machine."
  - C(ansible_host) is the address of the machine in the mesh. A machine that is not in the mesh gets C(<name>.invalid), a name that never
    resolves, so that a task fails as unreachable instead of running somewhere else.
  - Machines of lane V(kubelet) run Ubuntu and get C(ansible_connection) V(ssh), with the login of their cloud's images as C(ansible_user)
    (C(ubuntu) on Lambda, C(paperspace) on Paperspace, C(root) on Vast). All other machines get no connection, so that Ansible's default
    applies; they take no login, and a task for them fails as unreachable. O(compose) overrides each of these variables.
  - Any option of the fleet modules may stand in the file (documents, kubeconfig, credentials ...), with the same meaning and the same
    environment variables.
  - The file name has to end in C(tgp.yml) or C(tgp.yaml).
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - ansible-core >= 2.19
  - apprise >= 1.9 (for messages of runs)
  - cronsim >= 2.6 (for schedules of disruption budgets)
  - cryptography >= 42
  - httpx >= 0.28, < 1
  - jsonschema >= 4.20
  - prometheus-client >= 0.20 (for the metrics of runs)
  - kubernetes >= 33.1 (for kubeconfigs with an exec plugin or OpenID Connect)
  - PyYAML >= 6.0
  - tzdata >= 2024.1 (where the system has no time zones)
options:
  plugin:
    description: Marks the file as one for this plugin.
    type: str
    required: true
    choices: [tgp.gpu.nodes]
  documents:
    description:
      - The same as in the fleet modules, but for paths that do not begin with C(/) or C(~). They are relative to the folder of this file.
    type: list
    elements: raw
    default: []
  pools:
    description: Only machines of these pools, by name or namespace/name.
    type: list
    elements: str
    default: []
  connection:
    description:
      - V(auto) sets variables by which tasks reach the machines themselves, or fail.
      - V(local) sets C(ansible_connection=local) for every host. Tasks for these hosts then run on the controller, once for each machine.
        It is for plays that only use the variables of the hosts. It has no environment variable, and is not a default since 0.2.0.
    type: str
    choices: [auto, local]
    default: auto
    version_added: 0.2.0
  strict_sources:
    description:
      - Fail when something cannot be read (a cloud, the mesh, a line of the ledger). Otherwise its part of the variables is missing, with a
        warning, and the cache remembers nothing of that look.
    type: bool
    default: false
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
"""

EXAMPLES = r"""
# gpu.tgp.yml - all machines, credentials from the environment
plugin: tgp.gpu.nodes
documents: [my/pools.yml]
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/tgp
keyed_groups:
  - key: tgp_phase
    prefix: state
# machines of lane kubelet by their public address instead of the one in the mesh, with a login of your own
compose:
  ansible_host: tgp_ip | default(ansible_host, true)
  ansible_user: "'ops'"
"""

import glob
import os
import sys
import typing as t

from ansible.errors import AnsibleParserError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

from ..module_utils.core.bytecode import use_bytecode_cache
from ..module_utils.core.errors import TgpError
from ..module_utils.core.redact import redact, register
from ..module_utils.core.task import Task, secret_values

if t.TYPE_CHECKING:
    from ..module_utils.reports.status import Seen

_GROUPS = {
    "pool": "pool",
    "node_class": "class",
    "cloud": "cloud",
    "region": "region",
    "model": "gpu",
    "phase": "phase",
    "lane": "lane",
}
_OWN = {
    "plugin",
    "connection",
    "strict_sources",
    "pools",
    "strict",
    "compose",
    "groups",
    "keyed_groups",
    "use_extra_vars",
    "leading_separator",
}
use_bytecode_cache()


def look(task: Task) -> Seen:
    """Read everything once. An inventory from the cache reads nothing, so what this needs is not imported with the file. Imports inside
    functions also come after use_bytecode_cache."""
    from ..module_utils.reports.status import look as look_at_all

    return look_at_all(task)


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """One read of everything, or of the cache, per parse."""

    NAME = "tgp.gpu.nodes"

    def verify_file(self, path: str) -> bool:
        return bool(super().verify_file(path)) and path.endswith(("tgp.yml", "tgp.yaml"))

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path)
        self._groups: dict[str, str] = {}
        config = self._read_config_data(path)
        self.load_cache_plugin()
        key = self.get_cache_key(path)
        machines = self._cached(key) if cache and self.get_option("cache") else None
        if machines is None:
            seen = self._read(config, path)
            machines = seen.machines
            if self.get_option("cache") and not seen.unknown:  # what could not be read must not look like nothing for an hour
                self._cache[key] = machines
        self._add(machines)

    def _cached(self, key: str) -> list[dict[str, t.Any]] | None:
        try:
            return t.cast("list[dict[str, t.Any]]", self._cache[key])
        except KeyError:
            return None

    def _read(self, config: dict[str, t.Any], path: str) -> Seen:
        from ..module_utils.observe.options import FLEET_SPEC  # as in look

        given = {name: self.templar.template(value) for name, value in config.items() if name in FLEET_SPEC}
        unknown = [name for name in config if name not in FLEET_SPEC and name not in _OWN and not name.startswith("cache")]
        if unknown:
            raise AnsibleParserError(f"tgp.gpu.nodes: unknown options {', '.join(sorted(unknown))}.")
        checked = ArgumentSpecValidator(FLEET_SPEC).validate(given)
        if checked.error_messages:
            raise AnsibleParserError(f"tgp.gpu.nodes: {'; '.join(checked.error_messages)}")
        params = {**checked.validated_parameters, "pools": self.get_option("pools")}
        params["documents"] = [self._place(document, path) for document in params["documents"] or ()]
        register(*secret_values(FLEET_SPEC, params))
        task = Task(params=params, warn=lambda text: self.display.warning(text))
        try:
            seen = look(task)
        except TgpError as error:
            raise AnsibleParserError(redact(f"tgp.gpu.nodes: {error}")) from error
        if seen.unknown and self.get_option("strict_sources"):
            raise AnsibleParserError(redact(f"tgp.gpu.nodes: {'; '.join(seen.unknown)}"))
        for text in seen.unknown:
            self.display.warning(redact(f"tgp.gpu.nodes: {text}"))
        return seen

    def _place(self, entry: t.Any, path: str) -> t.Any:
        """A path of documents as the inventory file ``path`` means it: who syncs an inventory does so from any folder."""
        if not isinstance(entry, str) or os.path.isabs(os.path.expanduser(entry)):
            return entry
        beside = os.path.join(os.path.dirname(os.path.abspath(path)), entry)
        if not (os.path.exists(beside) or glob.glob(beside)) and (os.path.exists(entry) or glob.glob(entry)):
            self.display.warning(
                f"tgp.gpu.nodes: documents {entry} were found from the working directory. Write them relative to {path}, which is "
                "where the next version looks only."
            )
            return entry
        return beside

    def _add(self, machines: list[dict[str, t.Any]]) -> None:
        inventory = self.inventory
        inventory.add_group("gpu_nodes")
        composes = any(self.get_option(option) for option in ("compose", "groups", "keyed_groups"))
        for machine in machines:
            name = machine["name"]
            inventory.add_host(name, group="gpu_nodes")
            for key, value in self._way(machine).items():
                inventory.set_variable(name, key, value)
            for key, value in machine.items():
                inventory.set_variable(name, f"tgp_{key}", value)
            for key, prefix in _GROUPS.items():
                if machine.get(key):
                    inventory.add_host(name, group=self._group(f"{prefix}_{machine[key]}"))
            if composes:
                self._compose_of(name)

    def _group(self, wording: str) -> str:
        """The group below gpu_nodes, made once."""
        if wording not in self._groups:
            group = self.inventory.add_group(self._sanitize_group_name(wording.lower()))
            self.inventory.add_child("gpu_nodes", group)
            self._groups[wording] = group
        return self._groups[wording]

    def _compose_of(self, name: str) -> None:
        """What the file itself asks for. Ansible looks at all variables of the host for each of the three."""
        strict = self.get_option("strict")
        variables = self.inventory.hosts[name].get_vars()
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)

    def _way(self, machine: dict[str, t.Any]) -> dict[str, str]:
        """The variables by which tasks reach a machine: itself or nothing, never the controller unless the file asks for it."""
        if self.get_option("connection") == "local":
            return {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        addresses = sorted(machine["mesh_addresses"], key=lambda address: ":" in address)
        way = {"ansible_host": addresses[0] if addresses else f"{machine['name']}.invalid"}
        from ..module_utils.model import Lane  # as in look

        if machine["lane"] == Lane.KUBELET.value:
            from ..module_utils.providers.registry import CAPABILITIES

            way["ansible_connection"] = "ssh"
            facts = CAPABILITIES.get(machine["cloud"])
            if facts is not None and facts.login:
                way["ansible_user"] = facts.login
        return way
