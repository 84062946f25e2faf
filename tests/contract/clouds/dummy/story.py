# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that a cloud is for, done with the dummy cloud, in a process of its own: the registry looks for clouds when it is loaded.

Prints one JSON object: what was seen, by topic. ``argv``: a folder that may be written to.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
import typing as t
from pathlib import Path

HERE = Path(__file__).parent
PLUGINS = "ansible_collections.tgp.gpu.plugins"
KEY = "dummy-key-0123456789abcdefghijklmnop"
WRONG = "dummy-key-wrong-zzzzzzzzzzzzzzzzzzzz"

for _package, _folder in (("module_utils.providers", "providers"), ("modules", "modules")):
    importlib.import_module(f"{PLUGINS}.{_package}").__path__.append(str(HERE / _folder))

from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import TgpError  # noqa: E402
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task  # noqa: E402
from ansible_collections.tgp.gpu.plugins.module_utils.providers import registry  # noqa: E402

from ...act import rig as rigs  # noqa: E402
from . import market  # noqa: E402

rigs.URLS["dummy"] = "https://dummy.test"
rigs.RENTED = (*rigs.RENTED, "dummy")
Seen = dict[str, t.Any]


def world(folder: Path) -> rigs.Rig:
    """A sandbox in which the dummy cloud stands beside the others, and documents that want machines of it."""
    rig = rigs.Rig(folder, machines=[], **{"lambda": []})
    rig.world.secrets["DUMMY_API_KEY"] = KEY
    rig.world.offers += [market.dummy_offer("small", "attic", "0.40"), market.dummy_offer("large", "attic", "0.90", gpus=2)]
    rig.box.apps["dummy"] = rig.box._wrap(market.app(rig.world), "dummy")
    rig.demo_class["providers"] = [{"name": "Dummy-Cloud", "settings": {"shelf": "lower"}}]
    rig.training.clear()
    rig.training.update({"nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"}, "maxHourlyPrice": "4.00"})
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] in ("demo", "training")]
    return rig


def call(rig: rigs.Rig, module: str, **params: t.Any) -> Seen:
    """Any module, with the key and address of the dummy cloud alone unless told otherwise."""
    code = importlib.import_module(f"{PLUGINS}.modules.{module}")
    defaults = {name: option.get("default") for name, option in code.SPEC["argument_spec"].items()}
    given = {"dummy_api_key": KEY, "dummy_api_url": rigs.URLS["dummy"], "kubeconfig": str(rig.kubeconfig), **params}
    task = Task(
        {**defaults, **{name: value for name, value in given.items() if name in defaults}},
        progress=rig.lines.append,
        warn=rig.warnings.append,
        clock=rig.clock,
        transport=rig._transport,
    )
    return t.cast(Seen, code.run(task))


def said(act: t.Callable[[], t.Any]) -> str:
    """The error of what must fail."""
    try:
        act()
    except TgpError as error:
        return f"{error} {error.details}"
    raise SystemExit("this should have failed")


def documents(rig: rigs.Rig) -> Seen:
    found: Seen = {}
    (provider,) = rig.demo_class["providers"]
    for name, settings in (("value", {"shelf": "middle"}), ("field", {"shelve": "upper"})):
        provider["settings"] = settings
        found[name] = said(lambda: rig.plan("provision", pools=["training"], nodes=1, check=True))
    provider["settings"] = {"shelf": "lower"}
    provider["name"] = "dumy"
    found["typo"] = said(lambda: rig.plan("provision", pools=["training"], nodes=1, check=True))
    provider["name"] = "dummy"
    found["spot"] = said(lambda: [provider.update(bidMargin="0.2"), rig.plan("provision", pools=["training"], nodes=1, check=True)])
    del provider["bidMargin"]
    return found


def information(rig: rigs.Rig) -> Seen:
    offers = call(rig, "offer_info", clouds=["dummy"], cache="none", history="none")
    checks = {one["what"]: one for one in rig.run("validate")["checks"]}
    by_itself = call(rig, "offer_info", cache="none", history="none")
    return {
        "offers": [[one["id"], one["price_hour"], one["region"], one["lanes"]] for one in offers["offers"]],
        "asked by itself": sorted({one["cloud"] for one in by_itself["offers"]}),
        "check": checks["cloud dummy"],
        "instances": [one["cloud"] for one in call(rig, "instance_info")["instances"]],
    }


def fleet(rig: rigs.Rig) -> Seen:
    """A whole cycle, and one in which the answer to the order is lost."""
    rented = rig.rent()
    joined = rig.join()
    machine = rig.machine()
    info = call(rig, "instance_info")["instances"]
    shelf = machine.details["shelf"]
    status = rig.run("info")
    gone = rig.destroy()
    rig.check_bill()
    rig.fault("lost_after", "dummy", "POST", "/machines$")
    again = rig.provision()
    rig.fault("status", "dummy", "GET", "/machines$", status=500, times=None)
    before = len(rig.machines())
    rig.reap()
    blind = len(rig.machines()) == before
    rig.faults.clear()
    rig.destroy()
    rig.check_bill()
    return {
        "launched": [one["result"] for one in rented["machines"]],
        "joined": [one["result"] for one in joined["machines"]],
        "listed": [[one["cloud"], one["state"]] for one in info],
        "shelf": shelf,
        "status": "dummy" in json.dumps(status, default=str),
        "gone": [one["result"] for one in gone["machines"]],
        "after a lost answer": [one["result"] for one in again["machines"]],
        "a failed list ends nothing": blind,
        "ledger": [[line["cloud"], line["reason"]] for line in rig.ledger()],
        "left": rig.left(),
    }


def alone(rig: rigs.Rig) -> Seen:
    """Its own module: twice there, twice away."""
    turns = ("present", "present", "absent", "absent")
    changed = [call(rig, "dummy_instance", name="by-hand", kind="small", state=state)["changed"] for state in turns]
    return {"changed": changed, "left": rig.left()}


def credentials(rig: rigs.Rig) -> Seen:
    """Where a key may come from, and that no text shows it."""

    def planned(key: str | None = None) -> list[str]:
        plan = rig.run("plan", mode="provision", check=True, pools=["training"], nodes=1, dummy_api_key=key)
        return [one["cloud"] for one in plan["plan"] if one["action"] == "launch"]

    found: Seen = {"option": planned(KEY), "nowhere": [planned(), [text for text in rig.warnings if "DUMMY_API_KEY" in text][-1:]]}
    os.environ["DUMMY_API_KEY"] = KEY
    found["environment"] = planned()
    del os.environ["DUMMY_API_KEY"]
    for namespace, name, key in (("default", "mine", "token"), ("tgp-system", "tgp-operator-secret", "DUMMY_API_KEY")):
        data = {key: base64.b64encode(KEY.encode()).decode()}
        rig.kube("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": name}, "data": data})
        (provider,) = rig.demo_class["providers"]
        if namespace == "default":
            provider["credentialsRef"] = {"namespace": namespace, "name": name, "key": key}
        found[name] = planned()
        provider.pop("credentialsRef", None)
    found["wrong"] = said(lambda: call(rig, "dummy_instance", name="by-hand", kind="small", dummy_api_key=WRONG))
    found["option is secret"] = registry.CLOUDS_SPEC["dummy_api_key"].get("no_log")
    return found


def main(folder: Path) -> None:
    rig = world(folder)
    try:
        topics = (documents, information, fleet, alone, credentials)
        found = {topic.__name__: topic(rig) for topic in topics}
        everything = json.dumps([found, rig.lines, rig.warnings, rig.events(), rig.claims()], default=str)
        found["keys in any text"] = [one for one in (KEY, WRONG) if one in everything]
        found["clouds"] = sorted(registry.ENTRIES)
    finally:
        rig.close()
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
