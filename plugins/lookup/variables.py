# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: variables
short_description: What the user has given of a playbook's variables
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
description:
  - Collects the variables C(tgp_<word>), wherever they come from (C(-e), inventory, AWX survey), into one mapping of words to values.
  - What is not given, or is empty as an optional answer of a survey, is not in it.
  - The names of version 0.1, the words alone, count where they are given with C(-e), until version 0.3.0.
  - The playbooks of the collection use it, and you can, in a playbook that is to take the same variables.
requirements:
  - ansible-core >= 2.19
options:
  _terms:
    description: The words, without C(tgp_).
    type: list
    elements: str
    required: true
  extra_only:
    description: Words that count only when they are given with C(-e), as what C(destroy.yml) is to destroy.
    type: list
    elements: str
    default: []
  strict:
    description:
      - Fail when a variable given with C(-e) resembles the words, or begins with C(tgp_), and is none of them.
      - The modules of the collection check the same in a play that has the words in its variable C(tgp_variables). A play whose first tasks are
        others needs it in front of them.
    type: bool
    default: false
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Show which pool is meant
  ansible.builtin.debug:
    msg: "{{ given.pool | default('all of them') }}"
  vars:
    given: "{{ lookup('tgp.gpu.variables', 'documents', 'pool') }}"

- name: Refuse a mistyped variable
  ansible.builtin.assert:
    that: lookup('tgp.gpu.variables', 'documents', 'pool', strict=true) is mapping
"""

RETURN = r"""
_raw:
  description: One mapping of the given words to their values.
  type: list
  elements: dict
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ..module_utils.core.variables import OLD_NAMES_END, check, renamed, source

display = Display()


class LookupModule(LookupBase):
    """``lookup('tgp.gpu.variables', 'documents', 'pool')``"""

    def run(self, terms: list[t.Any], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[t.Any]:
        self.set_options(var_options=variables, direct=kwargs)
        defined: dict[str, t.Any] = variables or {}
        extra, only = load_extra_vars(self._loader), self.get_option("extra_only")
        words = self._flatten(terms)
        if self.get_option("strict"):
            _refuse_unknown(extra, words)
        given: dict[str, t.Any] = {}
        for word in words:
            if name := source(word, defined, extra, extra_only=word in only):
                value = self._templar.template(defined[name])
                if value is not None and value != "":
                    given[word] = value
        return [given]


def _refuse_unknown(extra: t.Collection[str], words: t.Collection[str]) -> None:
    usage = check(extra, words)
    for name in usage.old:
        display.deprecated(renamed(name), version=OLD_NAMES_END, collection_name="tgp.gpu")
    if usage.problems:
        raise AnsibleLookupError(" ".join(usage.problems))
