# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet makes of pods that run iperf3 (S3-26), a server and a client with several runs, and what iperf3 prints. The reports have the
fields of iperf3 3.12, which was run for that between two ends of one machine.

The name of the image says what is wrong with it: one that ends with ``/missing`` cannot be pulled, ``/empty`` has no iperf3, ``/odd`` has a
program of that name that prints no JSON, ``/old`` is iperf3 3.0, which reports no round trips, ``/late`` listens only after the client has
tried once, ``/deaf`` never. What is wrong with the way between the pods is a behaviour of the client's machine: mesh_relayed, mesh_blocked.
"""

from __future__ import annotations

import functools
import hashlib
import json
import typing as t
from datetime import datetime, timedelta

from .behaviour import Behaviour
from .kubelet import time_text
from .trial import Json, Status

LABEL = "tgp.io/bench-mesh"
PRINTED = "printed"  # key of a status: what the containers have printed, by name. It is taken out before the status is written
PULL, BACK_OFF = 2.0, 10.0  # seconds that the image takes to come, and until the kubelet starts a failed container once more
_DIRECT = {"rtt": 18_400, "bits": 941.3e6, "retransmits": 12}  # round trip in microseconds
_RELAYED = {"rtt": 96_700, "bits": 18.7e6, "retransmits": 431}
_NO_PROGRAM = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start "
    'container process: error during container init: exec: "iperf3": executable file not found in $PATH'
)


def course(pod: Json, parts: t.Mapping[str, Behaviour], _alive: float, *, first: bool) -> t.Iterator[tuple[float, Status]]:
    """What the kubelet writes and when, in seconds from the pod's placement. ``first`` does not matter here."""
    deadline = float(pod["spec"].get("activeDeadlineSeconds") or 1e9)
    kind = _kind(pod)
    yield 0.5, functools.partial(_status, states={})
    if kind == "missing":
        yield 1.0, functools.partial(_status, states={name: _pull_failed(pod) for name in _names(pod)})
        yield deadline, _over
    elif kind == "empty":
        yield PULL, functools.partial(_status, states={_names(pod)[0]: _no_program})
        yield deadline, _over
    elif "-s" in pod["spec"]["containers"][0].get("args", ()):
        yield PULL, functools.partial(_status, states={_names(pod)[0]: _running})
        yield deadline, _over
    else:
        yield from _client(pod, kind, parts, deadline)


def _client(pod: Json, kind: str, parts: t.Mapping[str, Behaviour], deadline: float) -> t.Iterator[tuple[float, Status]]:
    names, at, done = _names(pod), PULL, dict[str, t.Callable[[datetime], Json]]()
    refused = "Connection timed out" if "mesh_blocked" in parts else "Connection refused" if kind in ("late", "deaf") else ""
    printed: dict[str, str] = {}
    tries = 0
    while refused and at < deadline and (kind != "late" or tries < 1 or "mesh_blocked" in parts):
        tries += 1
        printed = {names[0]: report_of_error(f"unable to connect to server: {refused}")}
        yield at, functools.partial(_status, states={names[0]: functools.partial(_crashed, tries=tries)}, printed=printed)
        at += BACK_OFF * min(2 ** (tries - 1), 30)
    if at >= deadline:
        yield deadline, _over
        return
    for name in names:
        yield at, functools.partial(_status, states={**done, name: _running}, printed=printed)
        at += _seconds(pod, name)
        done[name] = functools.partial(_ended, seconds=_seconds(pod, name))
        printed = {**printed, name: _output(pod, name, kind, parts)}
    yield at, functools.partial(_status, states=done, printed=printed, phase="Succeeded")


# ---- what iperf3 prints


def _output(pod: Json, name: str, kind: str, parts: t.Mapping[str, Behaviour]) -> str:
    if kind == "odd":
        return "iperf Done.\n"
    arguments = _arguments(pod, name)
    return report(
        _RELAYED if "mesh_relayed" in parts else _DIRECT,
        float(_after(arguments, "-t")),
        idle="-b" in arguments,
        reverse="-R" in arguments,
        old=kind == "old",
        host=_after(arguments, "-c"),
        port=int(_after(arguments, "-p")),
    )


def report(
    link: t.Mapping[str, t.Any],
    seconds: float,
    *,
    idle: bool = False,
    reverse: bool = False,
    old: bool = False,
    host: str = "",
    port: int = 5201,
) -> str:
    """The JSON of one run, as iperf3 3.16 writes it, or 3.0 (``old``)."""
    bits = 320e3 if idle else float(link["bits"]) * (0.93 if reverse else 1.0)
    again = 0 if idle else int(link["retransmits"])
    span = {"start": 0, "end": seconds, "seconds": seconds, "bytes": int(bits * seconds / 8), "bits_per_second": bits}
    sender: Json = {"socket": 5, **span, "retransmits": again, "sender": not reverse}
    if not old:
        # round trips are those of the client's kernel: it does not send in reverse
        trip = 0 if reverse else int(link["rtt"]) if idle else int(link["rtt"]) * 3
        sender |= {
            "max_snd_cwnd": 0 if reverse else 1331200,
            "max_rtt": trip * 5 // 4,
            "min_rtt": trip * 19 // 20,
            "mean_rtt": trip,
        }
    sent, received = {**span, "retransmits": again, "sender": not reverse}, {**span, "sender": not reverse}
    start = {
        "connected": [{"socket": 5, "local_host": "10.244.0.9", "local_port": 47236, "remote_host": host, "remote_port": port}],
        "version": "iperf 3.0.11" if old else "iperf 3.16",
        "system_info": "Linux tgp-bench 6.12.48-talos #1 SMP PREEMPT_DYNAMIC x86_64",
        "timestamp": {"time": "Thu, 20 Aug 2026 12:00:00 GMT", "timesecs": 1787227200},
        "connecting_to": {"host": host, "port": port},
        "cookie": "qdnmsu3xy2yl5xfbhxlxq4cj2ktgfoxnzg5e",
        "tcp_mss_default": 1208,
        "test_start": {
            "protocol": "TCP",
            "num_streams": 1,
            "blksize": 4000 if idle else 131072,
            "duration": int(seconds),
            "reverse": int(reverse),
        },
    }
    end = {
        "streams": [{"sender": sender, "receiver": {"socket": 5, **received}}],
        "sum_sent": sent,
        "sum_received": received,
        "cpu_utilization_percent": {"host_total": 4.1, "host_user": 0.3, "host_system": 3.8, "remote_total": 9.6},
        "sender_tcp_congestion": "cubic",
        "receiver_tcp_congestion": "cubic",
    }
    return json.dumps({"start": start, "intervals": [{"streams": [], "sum": span}], "end": end}, indent="\t") + "\n"


def report_of_error(error: str) -> str:
    return (
        json.dumps({"start": {"connected": [], "version": "iperf 3.16"}, "intervals": [], "end": {}, "error": error}, indent="\t")
        + "\n"
    )


# ---- what the kubelet writes


def _containers(pod: Json) -> list[Json]:
    """In the order in which they start."""
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def _names(pod: Json) -> list[str]:
    return [str(one["name"]) for one in _containers(pod)]


def _arguments(pod: Json, name: str) -> list[str]:
    return list(next(one for one in _containers(pod) if one["name"] == name).get("args") or ())


def _after(arguments: t.Sequence[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def _seconds(pod: Json, name: str) -> float:
    return float(_after(_arguments(pod, name), "-t")) + 0.5


def _kind(pod: Json) -> str:
    """The last part of the image's name, without tag and digest."""
    return str(pod["spec"]["containers"][0].get("image", "")).partition("@")[0].rpartition("/")[2].partition(":")[0]


def _status(
    pod: Json,
    now: datetime,
    states: t.Mapping[str, t.Callable[[datetime], Json]],
    printed: t.Mapping[str, str] | None = None,
    phase: str = "",
) -> Json:
    """The pod with these containers in these states; the others wait."""
    began = {name for name in states if "running" in states[name](now).get("state", {})}
    main = str(pod["spec"]["containers"][0]["name"])
    number = int(hashlib.sha256(str(pod["metadata"]["uid"]).encode()).hexdigest()[:4], 16)
    address = f"10.244.{number % 250}.{number // 250 % 250 + 2}"

    def shown(kind: str) -> list[Json]:
        waiting = {"waiting": {"reason": "PodInitializing" if states else "ContainerCreating"}}
        return [
            {
                "name": one["name"], "image": one.get("image", ""), "imageID": "", "restartCount": 0, "ready": False, "state": waiting,
                **(states[one["name"]](now) if one["name"] in states else {}),
            }
            for one in pod["spec"].get(kind) or ()
        ]  # fmt: skip

    return {
        "phase": phase or ("Running" if main in began else "Pending"),
        "startTime": time_text(now),
        **({"podIP": address, "podIPs": [{"ip": address}]} if states else {}),
        "containerStatuses": shown("containers"),
        **({"initContainerStatuses": shown("initContainers")} if pod["spec"].get("initContainers") else {}),
        PRINTED: dict(printed or {}),
    }


def _running(now: datetime) -> Json:
    return {"ready": True, "started": True, "state": {"running": {"startedAt": time_text(now)}}}


def _end(now: datetime, seconds: float, code: int, reason: str, message: str = "") -> Json:
    began = time_text(now - timedelta(seconds=seconds))
    more = {"message": message} if message else {}
    return {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": time_text(now), **more}


def _ended(now: datetime, seconds: float) -> Json:
    return {"ready": True, "state": {"terminated": _end(now, seconds, 0, "Completed")}}


def _crashed(now: datetime, tries: int) -> Json:
    waiting = {"reason": "CrashLoopBackOff", "message": f"back-off {BACK_OFF:.0f}s restarting failed container"}
    return {"restartCount": tries, "state": {"waiting": waiting}, "lastState": {"terminated": _end(now, 0.1, 1, "Error")}}


def _no_program(now: datetime) -> Json:
    waiting = {"reason": "CrashLoopBackOff", "message": f"back-off {BACK_OFF:.0f}s restarting failed container"}
    return {
        "restartCount": 1,
        "state": {"waiting": waiting},
        "lastState": {"terminated": _end(now, 0, 128, "StartError", _NO_PROGRAM)},
    }


def _pull_failed(pod: Json) -> t.Callable[[datetime], Json]:
    image = pod["spec"]["containers"][0].get("image", "")
    waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": not found'}
    return lambda _now: {"state": {"waiting": waiting}}


def _over(_pod: Json, _now: datetime) -> Json:
    """Its activeDeadlineSeconds are over."""
    return {
        "phase": "Failed",
        "reason": "DeadlineExceeded",
        "message": "Pod was active on the node longer than the specified deadline",
    }
