# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cloud's file says of itself (``ENTRY``), so that nothing else has to be changed when a cloud is added."""

from __future__ import annotations

import dataclasses
import os
import typing as t
from urllib.parse import urlsplit

from ansible.module_utils.basic import env_fallback

from ..core import errors
from ..core.task import Task
from ..model import Capability, CloudChoice
from .base import Cloud
from .webhook.targets import is_loopback

NodeReady = t.Callable[[str], "bool | None"]
Spec = dict[str, t.Any]


class Wanted(t.NamedTuple):
    """What a connector is given: the call, a credential found elsewhere, the class's entry, and how to ask for a Node.

    ``node_ready`` and ``in_flight`` concern own machines only (webhook/cloud.py)."""

    task: Task
    credential: str | None = None
    choice: CloudChoice | None = None
    node_ready: NodeReady | None = None
    in_flight: t.Mapping[str, str] | None = None

    def setting(self, name: str) -> t.Any:
        """What the class says under this cloud, None = nothing."""
        return self.choice.settings.get(name) if self.choice else None


@dataclasses.dataclass(frozen=True)
class Entry:
    """One cloud. ``spec`` are its module options (every one with its environment variables as fallback), ``key`` names the one that
    holds the credential. ``settings`` are JSON schemas of what a class may say under ``providers[].settings``. ``aliases`` are other
    spellings of its name. ``regions``: its own words (lower case) to standard regions, where they do not say it themselves.
    ``configured`` tells whether anything of it was given; default: its key was.
    """

    facts: Capability
    connect: t.Callable[[Wanted], Cloud]
    spec: Spec
    key: str = ""
    aliases: tuple[str, ...] = ()
    settings: t.Mapping[str, dict[str, t.Any]] = dataclasses.field(default_factory=dict)
    regions: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    configured: t.Callable[[Task], bool] | None = None

    @property
    def name(self) -> str:
        return self.facts.cloud

    def variables(self, name: str) -> tuple[str, ...]:
        """The environment variables that stand for an option."""
        fallback = self.spec[name].get("fallback")
        return tuple(fallback[1]) if fallback else ()

    def option(self, task: Task, name: str) -> str | None:
        """An option's value, else that of its environment variables (a call that lacks the option has no fallback of its own). The line
        end that a key from a file brings along is none of it."""
        given = (task.params.get(name), *(os.environ.get(variable) for variable in self.variables(name)))
        return next((found for value in given if value and (found := str(value).strip())), None)

    def address(self, task: Task, name: str, usual: str) -> str:
        """Where its API is: option ``name``, its environment variables, else ``usual``. InvalidInput for more than scheme, host and port, and
        for plain http to another machine: every call carries the key."""
        given = self.option(task, name)
        if not given:
            return usual
        try:
            parts = urlsplit(given)
        except ValueError:
            return given  # whoever opens it says what is wrong
        if parts.path.strip("/") or parts.query or parts.fragment:
            host = parts.netloc.rpartition("@")[2]
            raise errors.InvalidInput(
                f"{name} must be scheme, host and port, got an address with a path or a query.",
                remedy=f"Write {parts.scheme}://{host}; the paths of {self.name}'s API are added.",
            )
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise errors.InvalidInput(
                f"{name} leads to {parts.scheme}://{parts.netloc.rpartition('@')[2]}, and the API key would cross the network in clear text.",
                remedy="Use https. Plain http is for this machine alone (127.0.0.1, ::1 or localhost).",
            )
        return given

    def is_configured(self, task: Task) -> bool:
        return self.configured(task) if self.configured else bool(self.option(task, self.key))

    def credential(self, wanted: Wanted) -> str:
        """The key: option, environment, or found elsewhere. Unauthorized names everything that was looked at."""
        key = self.option(wanted.task, self.key) or wanted.credential
        if key:
            return key
        variables = " or ".join(self.variables(self.key))
        raise errors.Unauthorized(
            f"{self.name}: no API key is given.",
            remedy=f"Set the environment variable {variables}, the option {self.key}, or credentialsRef of the class.",
            service=self.name,
        )


def text_option(*variables: str, **more: t.Any) -> Spec:
    """The argument spec of a text option with environment variables as fallback."""
    return {"type": "str", "fallback": (env_fallback, list(variables)), **more}
