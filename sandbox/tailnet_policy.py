# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy file of the sandbox's tailnet: who owns which tag, and which connections its rules allow.

Reads HuJSON with a tokeniser of its own, so that the collection's reader is held to account by a second one.
"""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

DEFAULT = """{
  // The OAuth client carries tag:tgp; machines get the tags it owns.
  "tagOwners": {
    "tag:tgp": [],
    "tag:gpu": ["tag:tgp"],
    "tag:k8s": ["tag:tgp"],
    "tag:k8s-cp": ["autogroup:admin"],
    "tag:k8s-operator": ["autogroup:admin"],
  },
  "autoApprovers": {"routes": {"10.0.0.0/8": ["tag:gpu"]}},
  /* control plane and machines, both ways */
  "acls": [
    {"action": "accept", "src": ["tag:gpu"], "dst": ["tag:k8s-cp:6443,50001", "tag:gpu:*"]},
    {"action": "accept", "src": ["tag:k8s-cp"], "dst": ["tag:gpu:10250,50000"]},
  ],
}
"""

_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


class PolicyError(ValueError):
    """The text is not a policy."""


def parse(text: str) -> t.Any:
    """HuJSON (comments, trailing commas) to Python."""
    plain = _TRAILING.sub(lambda match: match[1] or "", _TOKEN.sub(lambda match: match[1] or " ", text))
    try:
        return json.loads(plain)
    except ValueError as error:
        raise PolicyError(str(error)) from error


def without_comments(text: str) -> str:
    """HuJSON whose comments are blanks, in their places; trailing commas stay."""
    return _TOKEN.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)


class Policy:
    """A policy text and what follows from it. ``etag`` is the quoted hash of the text."""

    def __init__(self, text: str = DEFAULT) -> None:
        content = parse(text)
        if not isinstance(content, dict):
            raise PolicyError("the policy must be an object")
        self.text = text
        self.content: dict[str, t.Any] = content
        self.etag = f'"{hashlib.sha256(text.encode()).hexdigest()}"'

    @property
    def owners(self) -> dict[str, list[str]]:
        """``{tag: [owner]}``."""
        return dict(self.content.get("tagOwners") or {})

    def defined(self, tag: str) -> bool:
        return tag in self.owners

    def assignable(self, tag: str, actor_tags: t.Collection[str]) -> bool:
        """An OAuth client may assign its own tags and those that one of them owns."""
        return self.defined(tag) and (tag in actor_tags or any(owner in actor_tags for owner in self.owners[tag]))

    def allows(self, source: str, target: str, port: str) -> bool:
        """True when an accept rule lets ``source`` reach ``target`` (a tag, user or host name) on ``port``."""
        for rule in self.content.get("acls") or []:
            if rule.get("action") != "accept" or not {source, "*"} & set(rule.get("src", [])):
                continue
            for destination in rule.get("dst", []):
                host, _, ports = destination.rpartition(":")
                if host in (target, "*") and (ports == "*" or port in ports.split(",")):
                    return True
        for grant in self.content.get("grants") or []:
            parties = {source, "*"} & set(grant.get("src", [])) and {target, "*"} & set(grant.get("dst", []))
            if parties and any(spec.rpartition(":")[2] in (port, "*") for spec in grant.get("ip", [])):
                return True
        return False

    def failures(
        self, tests: t.Sequence[t.Mapping[str, t.Any]], tags_of: t.Callable[[str], t.Collection[str]] = lambda _address: ()
    ) -> list[dict[str, t.Any]]:
        """Failed tests in the service's own words: ``[{"user", "errors"}]``. ``tags_of`` gives the tags of the device at an address."""
        found = []
        for test in tests:
            source, errors = str(test.get("src", "")), []
            for key, want in (("accept", True), ("deny", False)):
                for address in test.get(key) or []:
                    target, _, port = address.rpartition(":")
                    if any(self.allows(source, one, port) for one in (target, *tags_of(target))) is not want:
                        words = ("Accept", "Drop") if want else ("Drop", "Accept")
                        errors.append(f'address "{address}": want: {words[0]}, got: {words[1]}')
            if errors:
                found.append({"user": source, "errors": errors})
        return found

    def undefined_tags(self) -> list[str]:
        """Tags used in rules that nobody owns."""
        used = set(re.findall(r'"(tag:[a-z0-9-]+)', json.dumps(self.content)))
        return sorted(used - set(self.owners))
