# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks services and nodes, mostly through the tailnet: do they work, are they idle? What cannot be asked is unknown, never a no."""

from __future__ import annotations

import subprocess
import typing as t

from ..core.errors import ApiError, InvalidInput, Unreachable, lazy
from ..core.http import Answer, Api
from ..core.rate_limit import RetryPolicy
from ..core.redact import program_environment
from ..core.task import Task
from ..documents.faults import is_allowed
from ..model import Device, IdleProbe, Pool, Probe, ServiceSpec
from ..planner.provisioning.service_endpoints import address_of

if t.TYPE_CHECKING:
    import httpx
else:
    httpx = lazy("httpx")

_TIMEOUT = 5.0  # real seconds for one answer
_ONCE = RetryPolicy(tries=1)
_COMMAND = 30.0  # real seconds for a command
_ANY = range(200, 600)
_WORDS = {"idle": True, "true": True, "busy": False, "false": False}


class Heard(t.NamedTuple):
    """What a question brought: a yes, a no or unknown, what is known of it, and whether the service itself said so (``own``)."""

    found: bool | None
    detail: str
    own: bool = False


class Prober:
    """Asks one machine at a time; safe for several threads. ``mesh_proxy`` of the task is the way into the tailnet, else the direct one."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._proxy = str(task.params.get("mesh_proxy") or "").strip()
        if self._proxy and not self._proxy.startswith(("http://", "https://")):
            raise InvalidInput(f"mesh_proxy {self._proxy!r} is not an http(s) URL.", remedy="Write http://127.0.0.1:1056.")

    def check_way(self) -> str:
        """Prove that the proxy is there, if one is given; returns what is known. InvalidInput when it does not answer."""
        if not self._proxy:
            return "services are asked directly"
        root = "http://tgp-check.invalid"
        api = Api("mesh_proxy", root, transport=self._transport(root), timeout=_TIMEOUT, retry=_ONCE, clock=self._task.clock)
        try:
            api.call("GET", "/", ok=_ANY)
        except Unreachable as error:
            raise InvalidInput(
                f"mesh_proxy {self._proxy} does not answer: {error.message}", remedy="Start it, or correct the address."
            ) from error
        except ApiError:
            pass  # a server is there; its answer for this name does not matter
        finally:
            api.close()
        return f"services are asked through {self._proxy}"

    def health(self, service: ServiceSpec, device: Device) -> Probe:
        """Whether the health path is answered 2xx. A refused connection is a no; no way there is unknown."""
        heard = self._ask(device.hostname, address_of(device), service.health_port, service.health_path, _is_well)
        return Probe(heard.found, heard.detail)

    def idle(self, pool: Pool, device: Device) -> tuple[bool | None, str]:
        """The pool's idle probe; (None, why) is unknown."""
        probe, service = pool.idle_probe, pool.service
        if probe is None or service is None:
            return None, "no idleProbe says when it is idle"
        ports = [str(port) for port in service.ports]
        return self._idle(probe, device.hostname, address_of(device), service.health_port, ports)

    def node_idle(self, probe: IdleProbe, name: str, address: str) -> tuple[bool | None, str]:
        """That of a node, at the address of its mesh device or, without one, of its Node; (None, why) is unknown."""
        return self._idle(probe, name, address, probe.port, [str(probe.port)] if probe.port else [])

    def _idle(self, probe: IdleProbe, name: str, address: str, port: int | None, ports: t.Sequence[str]) -> tuple[bool | None, str]:
        if probe.command:
            own = {
                "TGP_NAME": name,
                "TGP_ADDRESS": address,
                "TGP_PORT": str(port or ""),
                "TGP_PORTS": ",".join(ports),
                "TGP_MESH_PROXY": self._proxy,
            }
            return self._command(probe.command, own)
        heard = self._ask(name, address, port or 0, probe.url, _is_idle)
        return (heard.found if heard.own else None), heard.detail  # who is not there is not busy, and not idle either

    # ---- by HTTP

    def _ask(self, name: str, address: str, port: int, path: str, read: t.Callable[[Answer], Heard]) -> Heard:
        if not address:
            return Heard(None, "its mesh device has no address")
        host = f"[{address}]" if ":" in address else address
        root = f"http://{host}:{port}"
        api = Api(name, root, transport=self._transport(root), timeout=_TIMEOUT, retry=_ONCE, clock=self._task.clock)
        try:
            return read(api.call("GET", path, ok=_ANY))
        except Unreachable as error:
            if not self._proxy and _is_refused(error):
                return Heard(False, f"nothing listens on port {port}")
            way = f"mesh_proxy {self._proxy}" if self._proxy else "this machine, which may not be in the tailnet (see mesh_proxy)"
            return Heard(None, f"{root} cannot be reached from {way}")
        except ApiError as error:
            return Heard(False, f"no answer on port {port}: {error.message}")
        finally:
            api.close()

    def _transport(self, root: str) -> httpx.BaseTransport:
        given = self._task.transport(self._proxy or root)
        if given is not None:
            return given
        return httpx.HTTPTransport(proxy=self._proxy) if self._proxy else httpx.HTTPTransport()

    # ---- by a command

    def _command(self, command: t.Sequence[str], own: t.Mapping[str, str]) -> tuple[bool | None, str]:
        """Only a command that the run allows, and never in check mode, which has no side effects."""
        if not is_allowed(command, self._task.params.get("allow_commands") or ()):
            return None, f"allow_commands does not allow {command[0]}"
        if self._task.check_mode:
            return None, f"{command[0]} is not run in check mode"
        try:
            completed = subprocess.run(
                list(command),
                env=program_environment(own),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_COMMAND,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, f"{command[0]} did not end within {_COMMAND:.0f} s"
        except OSError as error:
            return None, f"{command[0]} cannot be run: {error.strerror}"
        if completed.returncode in (0, 1):
            return completed.returncode == 0, f"it says: {command[0]} ended with {completed.returncode}"
        return None, f"{command[0]} ended with {completed.returncode}, which says neither idle (0) nor busy (1)"


def _is_well(answer: Answer) -> Heard:
    well = 200 <= answer.status < 300
    return Heard(well, "" if well else f"it answers {answer.status}", own=True)


def _is_idle(answer: Answer) -> Heard:
    """200 with {"idle": true|false}, or one of the words."""
    if answer.status != 200:
        return Heard(None, f"it answers {answer.status}")
    idle = answer.json.get("idle") if isinstance(answer.json, dict) else _WORDS.get(answer.text.strip().strip('"').lower())
    if not isinstance(idle, bool):
        return Heard(None, "its answer says neither idle nor busy")
    return Heard(idle, f"it says {'idle' if idle else 'busy'}", own=True)


def _is_refused(error: BaseException) -> bool:
    """Whether the address refused the connection: the machine is there, the service is not."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
