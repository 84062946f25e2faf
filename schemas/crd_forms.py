# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How single values of documents are written, as CEL rules with the sentences of the reader (documents/reading.py, units/values.py).

The reader accepts text or a whole number for money, durations, memory and shares. OpenAPI cannot say of which form such a text is, and a
pattern would be refused with the pattern instead of a sentence.
"""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES, ENTRIES

Rule = dict[str, t.Any]

LONGEST = 32  # characters of a value that may also be a number; the server bounds the cost of a rule by it
_SHOWN = '(type(self) == int ? string(self) : "\'" + self + "\'")'  # as Python shows a value
_UNIT = "; the largest unit is h (a day is 24h)."
_DURATION = r"[0-9]+|([0-9]+([.][0-9]+)?[smh])+"
_MONEY = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"


def quoted(text: str) -> str:
    """A literal of CEL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def listed(words: t.Iterable[str]) -> str:
    """A list of literals of CEL."""
    return f"[{', '.join(quoted(word) for word in words)}]"


def rule(expression: str, sentence: str = "", *, at: str = "", said: str = "") -> Rule:
    """``sentence`` is a fixed one; ``said`` an expression that makes it. ``at``: the field below this place that is meant."""
    made: Rule = {"rule": expression}
    if at:
        made["fieldPath"] = at
    return {**made, "messageExpression": said} if said else {**made, "message": sentence}


def text(pattern: str, description: str) -> Rule:
    """Of a string with a pattern: what faults.py says of it."""
    return rule(f"self.matches({quoted(pattern)})", said=f'"\'" + self + "\' is not " + {quoted(description + ".")}')


def _matches(pattern: str) -> str:
    return f"self.matches({quoted(f'^[ ]*({pattern})[ ]*$')})"


def _duration(allowed: str, more: str = "") -> Rule:
    said = f"'\"' + string(self) + '\" is not a duration. ' + {quoted(f'Write it like 90s, 10m or 1h30m{allowed}{_UNIT}')}"
    return rule(f"type(self) == int ? self >= 0 : {_matches(_DURATION + '|Never' + more)}", said=said)


def _share(pattern: str, most: int) -> list[Rule]:
    said = quoted(f' is not a percentage from 0% to {most}%. Write text like "10%", or a whole number of per cent.')
    return [rule(f"type(self) == int ? self <= {most} : {_matches(pattern)}", said=f"{_SHOWN} + {said}")]


_NEVER = rule("type(self) == int || self != 'Never'", '"Never" is not allowed here. Write a duration like 90s, 10m or 1h30m.')
_PERCENT = _share(r"(100|0?[0-9]?[0-9]) ?%?|(100[.]0+|0?[0-9]?[0-9][.][0-9]+) ?%", 100)
_DOLLARS = [
    rule(
        f"type(self) == int || {_matches(_MONEY)}",
        said="'\"' + string(self) + '\" is not an amount. Write dollars like \"0.42\", without a currency sign.'",
    ),
    rule(
        "type(self) == int ? self >= 0 : !self.matches('^[ ]*-.*[1-9]')",
        said="'\"' + string(self) + '\" is not a possible amount. It must be zero or more, and less than a trillion.'",
    ),
]
_BUDGET = rule(
    "type(self) == int ? self != 0 : !self.matches('^[ ]*[+-]?[0.]+([eE].*)?[ ]*$')",
    "A budget of 0 lets nothing be launched. Give an amount above 0, or leave the budget out.",
)
_MEMORY = rule(
    f"type(self) == int ? self > 0 : {_matches('[0-9]*[1-9][0-9]* *(Mi|Gi|Ti|MiB|GiB|TiB)?')}",
    said=f"{_SHOWN} + ' is not an amount of memory. Write GiB as a number, or text like 24Gi or 24576Mi.'",
)
_NODES = rule(
    f"type(self) == int ? self >= 0 : {_matches('[0-9]+|0*(100|[0-9]?[0-9])%')}",
    said='"\'" + string(self) + "\' is neither a number of nodes nor a share from 0% to 100%, like \\"10%\\"."',
)
# Every field that is text or a whole number, by its name; a test fails when one is missing
FORMS: dict[str, list[Rule]] = {
    **dict.fromkeys(("maxHourlyPrice", "maxHourlyCost", "hourlyCost", "pricePerGBMonth"), _DOLLARS),
    "amount": [*_DOLLARS, _BUDGET],
    **dict.fromkeys(
        ("persistentKeepalive", "unhealthyTimeout", "minAge", "drainTimeout", "registrationTimeout", "terminationGracePeriod",
         "scaleUpDelay", "minDuration", "duration", "timeout", "window", "for"),
        [_duration(""), _NEVER],
    ),
    **dict.fromkeys(
        ("consolidateAfter", "deleteStoppedAfter", "expireAfter", "maxLifetime", "idleTimeout", "silentFor", "controllerSilentFor"),
        [_duration(', or "Never"')],
    ),
    **dict.fromkeys(("minGpuMemory", "minMemory", "minDisk"), [_MEMORY]),
    **dict.fromkeys(("spotDiscountMin", "minReliability", "expireJitter", "utilizationThreshold", "replaceCheaperPercent", "below"), _PERCENT),
    "bidMargin": _share(r"(900|[0-8]?[0-9]?[0-9]) ?%?|(900[.]0+|[0-8]?[0-9]?[0-9][.][0-9]+) ?%", 900),
    "nodes": [_NODES],
}  # fmt: skip


# ---- names of clouds, in all their usual spellings


def _spellings(clouds: t.Iterable[str]) -> str:
    return listed(sorted(alias for name in clouds for alias in (name, *ENTRIES[name].aliases)))


def is_cloud(value: str, clouds: t.Iterable[str] = tuple(ENTRIES)) -> str:
    """Whether ``value``, an expression, names one of ``clouds``."""
    plain = value + ".lowerAscii()" + "".join(f".replace('{sign}', '')" for sign in "-_. ")
    return f"{plain} in {_spellings(clouds)}"


SPOT = tuple(name for name, facts in CAPABILITIES.items() if facts.spot)
VOLUMES = tuple(name for name, facts in CAPABILITIES.items() if facts.volumes)
KNOWN_CLOUDS = f"Known are {', '.join(ENTRIES)}."
CLOUD = rule(is_cloud("self"), said=f'"there is no cloud \'" + self + "\'. " + {quoted(KNOWN_CLOUDS)}')
ADDRESS = rule(
    "self.matches('^(https?://[^/]|/([^/]|$))')",
    said='"\'" + self + "\' is neither an http or https address nor a path below webhook_url."',
)
NETWORK = rule(
    "self.matches('^([0-9]{1,3}([.][0-9]{1,3}){3}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)(/[0-9]{1,3})?$')",
    said='"\'" + self + "\' does not appear to be an IPv4 or IPv6 network. Write a network like 10.0.0.0/24."',
)
