# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations handed to a machine in maintenance mode over a real TLS connection on loopback."""

from __future__ import annotations

import base64
import json
import socket
import threading
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.talos.api import machine as machine_api
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import to_yaml
from ansible_collections.tgp.gpu.plugins.modules import talos_machine_info, talos_push
from hyperframe.frame import GoAwayFrame, PingFrame

from sandbox import talos_maintenance
from sandbox.clock import SimClock
from sandbox.talos_maintenance import Maintenance
from tests.fixtures.talos_nodes import BUNDLE, NODE_KEY, NODE_TOKEN, make

INSTALLER = f"factory.talos.dev/metal-installer/{'a' * 64}:v1.13.9"
CONFIG = to_yaml(build(make(install_disk="/dev/vda", installer_image=INSTALLER)))
LOOPBACK = ["127.0.0.0/8"]
SECRETS = (NODE_KEY, NODE_TOKEN, BUNDLE["trustdinfo"]["token"], BUNDLE["cluster"]["secret"])


@pytest.fixture
def machine() -> t.Iterator[Maintenance]:
    with Maintenance() as running:
        yield running


def options(spec: dict[str, t.Any], given: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What AnsibleModule makes of the given options."""
    found = {name: given.get(name, option.get("default")) for name, option in spec.items()}
    for name, option in spec.items():
        if option.get("options"):
            found[name] = [options(option["options"], one) for one in found[name] or []]
    return found


def call(
    module: t.Any, check: bool = False, diff: bool = False, warnings: list[str] | None = None, **given: t.Any
) -> dict[str, t.Any]:
    given.setdefault("call_timeout", 5.0)
    task = Task(
        params=options(module.SPEC["argument_spec"], given),
        check_mode=check,
        diff_mode=diff,
        clock=SimClock(speed=100.0),
        warn=(warnings if warnings is not None else []).append,
    )
    result = execute(module.SPEC, module.run, task)
    assert not any(secret in json.dumps(result) for secret in SECRETS)
    return result


def node(machine: Maintenance, **changes: t.Any) -> dict[str, t.Any]:
    return {"name": "tgp-lab-1", "host": "127.0.0.1", "port": machine.port, "config": CONFIG, **changes}


def push(
    machine: Maintenance,
    *,
    check: bool = False,
    diff: bool = False,
    networks: list[str] = LOOPBACK,
    wait: int = 0,
    **changes: t.Any,
):
    return call(talos_push, check, diff, nodes=[node(machine, **changes)], trusted_networks=networks, wait=wait)


def test_a_machine_takes_its_configuration_byte_for_byte(machine: Maintenance) -> None:
    machine.warnings = ("persist is deprecated",)
    warnings: list[str] = []
    result = call(talos_push, nodes=[node(machine)], trusted_networks=LOOPBACK, diff=True, warnings=warnings)
    one = result["nodes"][0]
    assert (result["changed"], one["applied"], one["state"], one["taken_as"]) == (True, True, "maintenance", "no-reboot")
    assert (one["version"], one["arch"], one["platform"], one["mode"]) == ("v1.13.9", "amd64", "metal", "metal")
    assert one["fingerprint"] == machine.fingerprint and one["warnings"] == ["persist is deprecated"]
    assert warnings == ["tgp-lab-1: persist is deprecated"] and result["diff"][0]["after"] != result["diff"][0]["before"]
    assert machine.applied == [CONFIG]


def test_a_certificate_that_nobody_can_read_stops_no_other_machine(machine: Maintenance, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key, fingerprint = talos_maintenance._identity()
    body = base64.b64decode(b"".join(certificate.splitlines()[1:-1])).replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05", 1)
    lines = b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(body) + b"-----END CERTIFICATE-----\n"
    monkeypatch.setattr(talos_maintenance, "_identity", lambda: (lines, key, fingerprint))
    with Maintenance() as odd:
        nodes = [node(odd, name="tgp-lab-2"), node(machine)]
        result = call(talos_push, nodes=nodes, trusted_networks=LOOPBACK)
        assert [one["applied"] for one in result["nodes"]] == [False, True] and odd.applied == []
        assert "tgp-lab-2: What answers shows a certificate that cannot be read." in result["msg"]


@pytest.mark.parametrize("pieces", [1, 7, 10_000])
def test_a_machine_that_says_goodbye_before_it_answers_has_taken_its_configuration(
    machine: Maintenance, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    """Talos ends its maintenance service while the call that it ends by is still being answered, as servers of gRPC end: no new calls,
    is anybody there?, and then the answer."""
    answer = talos_maintenance.Session._answer

    def with_goodbye(session: t.Any, stream: int) -> None:
        if session._headers[stream][":path"].endswith("ApplyConfiguration"):
            goodbye = GoAwayFrame(0, last_stream_id=2**31 - 1, error_code=0, additional_data=b"graceful_stop").serialize()
            said = goodbye + PingFrame(0, opaque_data=b"goodbye!").serialize()
            for start in range(0, len(said), pieces):
                session._sock.sendall(said[start : start + pieces])
        answer(session, stream)

    monkeypatch.setattr(talos_maintenance.Session, "_answer", with_goodbye)
    one = push(machine)["nodes"][0]
    assert (one["applied"], one["taken_as"], one["problem"], len(machine.applied)) == (True, "no-reboot", "", 1)


@pytest.mark.parametrize(("last", "error"), [(0, 0), (2**31 - 1, 2)])
def test_a_goodbye_to_this_very_call_is_no_answer(
    machine: Maintenance, monkeypatch: pytest.MonkeyPatch, last: int, error: int
) -> None:
    def goodbye(session: t.Any, stream: int) -> None:
        session._sock.sendall(GoAwayFrame(0, last_stream_id=last, error_code=error).serialize())
        raise talos_maintenance._Cut

    monkeypatch.setattr(talos_maintenance.Session, "_answer", goodbye)
    seen = call(talos_machine_info, nodes=[{"host": "127.0.0.1", "port": machine.port}])["nodes"][0]
    assert seen["state"] == "unknown" and "did not answer" in seen["problem"]


def test_a_machine_that_has_a_configuration_is_left_alone(machine: Maintenance) -> None:
    push(machine)
    again = push(machine)
    assert (again["changed"], again["nodes"][0]["state"], again["nodes"][0]["applied"]) == (False, "configured", False)
    assert len(machine.applied) == 1


def test_check_mode_asks_and_sends_nothing(machine: Maintenance) -> None:
    result = push(machine, check=True)
    assert result["changed"] and result["nodes"][0]["would_apply"] and not result["nodes"][0]["applied"]
    assert machine.applied == [] and machine.calls == ["/machine.MachineService/Version"]
    push(machine)
    assert push(machine, check=True)["changed"] is False


@pytest.mark.parametrize("check", [False, True])
def test_nothing_is_sent_where_nobody_vouches_for_the_peer(machine: Maintenance, check: bool) -> None:
    result = push(machine, networks=["10.0.0.0/8"], check=check)
    assert result["failed"] and not result["changed"] and machine.applied == []
    assert "ApplyConfiguration" not in "".join(machine.calls)
    assert (
        "The configuration was not sent to 127.0.0.1 (127.0.0.1): nobody vouches for what answers there, and whoever answers would get "
        "the cluster's secrets. Reach the machine through the mesh, or name its network in trusted_networks" in result["msg"]
    )


def test_the_fingerprint_of_the_console_is_enough_anywhere(machine: Maintenance) -> None:
    assert push(machine, networks=[], fingerprint=machine.fingerprint)["nodes"][0]["applied"]


def test_another_fingerprint_gets_nothing_even_in_a_trusted_network(machine: Maintenance) -> None:
    other = Maintenance().fingerprint
    result = push(machine, fingerprint=other)
    assert f"it shows the fingerprint {machine.fingerprint} and not {other}" in result["msg"]
    assert machine.applied == []


@pytest.mark.parametrize("wrong", ["aa:bb:cc", "YWJj", machine_api.MODES[0]])
def test_a_fingerprint_of_another_form_is_refused_before_anything_is_asked(machine: Maintenance, wrong: str) -> None:
    result = push(machine, fingerprint=wrong)
    assert "is not of Talos's form" in result["msg"] and machine.calls == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("0.0.0.0/0", "too wide"), ("::/0", "too wide"), ("10.0.0.1/8", "has host bits set"), ("home", "is not a network")],
)
def test_networks_that_say_nothing_are_refused(machine: Maintenance, wrong: str, said: str) -> None:
    result = push(machine, networks=[wrong])
    assert said in result["msg"] and machine.calls == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"call_timeout": 0.0}, "call_timeout must be"),
        ({"call_timeout": float("nan")}, "call_timeout must be"),
        ({"wait": -1}, "wait cannot"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(machine: Maintenance, wrong: dict[str, t.Any], said: str) -> None:
    assert said in call(talos_push, nodes=[node(machine)], **{"wait": 0, **wrong})["msg"] and machine.calls == []
    assert "port 0 is not a port" in call(talos_machine_info, nodes=[{"host": "127.0.0.1", "port": 0}])["msg"]


def test_wrong_configurations_are_refused_before_the_first_machine_is_asked(machine: Maintenance) -> None:
    broken = yaml.safe_load(CONFIG.split("---")[0])
    broken["machine"]["systemd"] = {}
    nodes = [
        node(machine),
        node(machine, name="b", config=yaml.safe_dump(broken)),
        node(machine, name="c", config=None),
        node(machine, name="d", config="kind: HostnameConfig\napiVersion: v1alpha1\nhostname: d\n"),
    ]
    result = call(talos_push, nodes=nodes, trusted_networks=LOOPBACK)
    assert result["failed"] and machine.calls == []
    assert [one.partition(":")[0] for one in result["error"]["problems"]] == ["b", "c", "d"]


def test_a_machine_that_must_install_itself_is_not_sent_a_configuration_that_does_not_say_where(machine: Maintenance) -> None:
    result = push(machine, config=to_yaml(build(make())))
    assert "machine.install.disk is missing" in result["msg"] and machine.applied == []
    machine.platform = "nocloud"
    assert push(machine, config=to_yaml(build(make())))["nodes"][0]["applied"]


def test_a_refusal_of_talos_is_told(machine: Maintenance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever our own check lets through: here a node whose rules are stricter."""
    monkeypatch.setattr(machine, "_validate", lambda text: (_ for _ in ()).throw(_fault(f"too old: ü {NODE_KEY}")))
    result = push(machine)
    assert "Talos refused the configuration: too old: ü ********" in result["msg"] and machine.applied == []


def _fault(message: str) -> Exception:
    from sandbox.talos_maintenance import Fault

    return Fault(3, message)


def test_a_lost_answer_is_looked_up_and_never_sent_again(machine: Maintenance) -> None:
    machine.trouble = "lost"
    one = push(machine)["nodes"][0]
    assert (one["applied"], one["taken_as"]) == (True, "") and len(machine.applied) == 1


def test_a_cut_call_is_unknown(machine: Maintenance) -> None:
    machine.trouble = "cut"
    result = push(machine)
    assert "Whether it took the configuration is unknown" in result["msg"]
    assert machine.calls.count("/machine.MachineService/ApplyConfiguration") == 1


def test_a_silent_machine_costs_no_more_than_its_time(machine: Maintenance) -> None:
    machine.trouble = "silent"
    result = call(talos_push, nodes=[node(machine)], trusted_networks=LOOPBACK, call_timeout=0.5)
    assert "did not answer: it fell silent" in result["msg"]


def test_a_refusal_for_now_is_told_as_such(machine: Maintenance) -> None:
    machine.trouble = "unavailable"
    assert "refused ApplyConfiguration (unavailable): connection error" in push(machine)["msg"]


def test_large_configurations_go_through_the_windows(machine: Maintenance) -> None:
    documents = build(make(install_disk="/dev/vda", installer_image=INSTALLER))
    content = "x" * 400_000
    documents[0]["machine"]["files"] = [{"path": "/var/lib/note", "content": content, "permissions": 384, "op": "create"}]
    text = to_yaml(documents)
    assert push(machine, config=text)["nodes"][0]["applied"] and machine.applied == [text]


def test_one_machine_that_fails_stops_no_other(machine: Maintenance) -> None:
    with Maintenance() as second:
        nodes = [node(machine, name="a", fingerprint=second.fingerprint), node(second, name="b")]
        result = call(talos_push, nodes=nodes, trusted_networks=LOOPBACK)
        assert result["failed"] and result["changed"] and "1 of 2 machines" in result["msg"]
        assert [one["applied"] for one in result["nodes"]] == [False, True]


def test_machines_that_start_are_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    late = Maintenance(port=port)
    result = push(late)
    assert "cannot be reached" in result["msg"]
    timer = threading.Timer(0.2, late.__enter__)
    timer.start()
    try:
        assert push(late, wait=600)["nodes"][0]["applied"]
    finally:
        timer.join()
        late.__exit__()


def test_the_state_of_machines_is_seen_without_a_credential(machine: Maintenance) -> None:
    with Maintenance(says_version=False) as older, socket.create_server(("127.0.0.1", 0)) as closed, Maintenance() as done:
        push(done)
        gone = closed.getsockname()[1]
        closed.close()
        ports = [machine.port, older.port, done.port, gone]
        result = call(talos_machine_info, nodes=[{"host": "127.0.0.1", "port": port} for port in ports])
    assert [one["state"] for one in result["nodes"]] == ["maintenance", "maintenance", "configured", "unreachable"]
    assert [one["version"] for one in result["nodes"]] == ["v1.13.9", "", "", ""]
    assert result["nodes"][2]["fingerprint"] == done.fingerprint and result["changed"] is False


@pytest.mark.parametrize("reply", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_something_else_on_the_port_is_no_machine(reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock, _address = listener.accept()
            with sock:
                sock.recv(4096)
                sock.sendall(reply)

        threading.Thread(target=answer, daemon=True).start()
        port = listener.getsockname()[1]
        one = call(talos_machine_info, nodes=[{"host": "127.0.0.1", "port": port}])["nodes"][0]
    assert one["state"] == "unknown" and "does not speak TLS 1.3" in one["problem"]
