# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drives SkyPilot's RunPod provisioner for test_skypilot_witness.py. It is run by the Python of that package's own environment, never imported.

What calls RunPod is SkyPilot's own: ``sky.adaptors.runpod`` and ``sky.provision.runpod`` (``utils``, ``instance``). The rest of SkyPilot
needs a large tree of packages; of it the provisioner uses only containers of data, a logger and small helpers, for which there are
stand-ins here.

The first line of standard input is ``{"url", "key"}``; each later line is ``{"call": name, "fields": {…}}``, answered by ``{"data": …}``,
``{"refused": text, "status": status of RunPodRestError, if it was one}``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import json
import logging
import pathlib
import sys
import types
import typing as t

Record = types.SimpleNamespace


def stand_in(name: str, **members: t.Any) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    above, _dot, last = name.rpartition(".")
    if above:
        setattr(sys.modules[above], last, module)


def load(url: str) -> t.Any:
    """``sky.provision.runpod.instance``, whose calls go to ``url``."""
    spec = importlib.util.find_spec("sky")
    assert spec is not None and spec.origin is not None
    root = pathlib.Path(spec.origin).parent
    for package in ("sky", "sky.adaptors", "sky.provision", "sky.provision.runpod", "sky.skylet", "sky.utils"):
        stand_in(package, __path__=[str(root.joinpath(*package.split(".")[1:]))])  # its own modules, without what it imports itself
    stand_in("sky.sky_logging", init_logger=logging.getLogger)
    stand_in("sky.skylet.constants", SKY_REMOTE_RAY_DASHBOARD_PORT=8266, SKY_REMOTE_RAY_PORT=6380)
    names = ("ProvisionConfig", "ProvisionRecord", "InstanceInfo", "ClusterInfo", "Endpoint", "SocketEndpoint")
    stand_in("sky.provision.common", **dict.fromkeys(names, Record))
    stand_in("sky.provision.docker_utils")
    stand_in("sky.utils.common_utils", format_exception=lambda error, **_options: str(error))
    stand_in("sky.utils.resources_utils", port_ranges_to_set=lambda ports: {int(port) for port in ports})
    stand_in("sky.utils.ux_utils", print_exception_no_traceback=contextlib.nullcontext)
    stand_in("runpod")  # the vendor's library, asked for a key only
    adaptor = importlib.import_module("sky.adaptors.runpod")
    adaptor._REST_BASE = f"{url}/v2"
    adaptor._RETRY_SLEEP_SECONDS = 0.01
    instance = importlib.import_module("sky.provision.runpod.instance")
    instance.POLL_INTERVAL = 0.05
    return instance


def run(instance: t.Any, call: str, fields: dict[str, t.Any]) -> t.Any:
    if call == "run_instances":
        node = {"InstanceType": fields["type"], "DiskSize": 40, "ImageId": fields["image"], "PublicKey": fields["key"]}
        node |= {"Preemptible": False, "BidPerGPU": 0.0}
        config = Record(
            count=fields["count"],
            node_config=node,
            provider_config={"availability_zone": fields["zone"]},
            ports_to_open_on_launch=fields["ports"],
        )
        return vars(instance.run_instances("RO", fields["name"], fields["name"], config))
    if call == "query_instances":
        found = instance.query_instances(fields["name"], fields["name"], {})
        return {name: status.name for name, (status, _reason) in found.items()}
    if call == "get_cluster_info":
        info = instance.get_cluster_info("RO", fields["name"], {})
        return {**vars(info), "instances": {name: [vars(one) for one in many] for name, many in info.instances.items()}}
    if call == "query_ports":
        found = instance.query_ports(fields["name"], fields["ports"])
        return {port: vars(ends[0]) for port, ends in found.items()}
    if call == "terminate_instances":
        return instance.terminate_instances(fields["name"], worker_only=fields.get("worker_only", False))
    return getattr(instance.utils, call)(**fields)


def answer(instance: t.Any, call: dict[str, t.Any]) -> dict[str, t.Any]:
    try:
        return {"data": run(instance, call["call"], call["fields"])}
    except (RuntimeError, ValueError) as error:
        return {"refused": str(error), "status": getattr(error, "status_code", None)}


def main() -> None:
    configuration = json.loads(sys.stdin.readline())
    instance = load(configuration["url"])
    sys.modules["runpod"].api_key = configuration["key"]  # type: ignore[attr-defined]
    for line in sys.stdin:
        print(json.dumps(answer(instance, json.loads(line)), default=dataclasses.asdict), flush=True)


if __name__ == "__main__":
    main()
