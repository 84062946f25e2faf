# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A class's template text, filled in. Go's ``{{.Name}}`` and Jinja2's ``{{ Name }}`` / ``{{ node_name }}`` both work."""

from __future__ import annotations

import difflib
import functools
import re
import typing as t

from ..errors import InvalidInput
from ..libs import lazy

if t.TYPE_CHECKING:
    import jinja2
    from jinja2 import meta, nodes, sandbox
else:
    jinja2 = lazy("jinja2")
    meta = lazy("jinja2.meta")
    nodes = lazy("jinja2.nodes")
    sandbox = lazy("jinja2.sandbox")

_GO_VARIABLE = re.compile(r"\{\{(-?)\s*\.([A-Za-z_]\w*)\s*(-?)\}\}")
_BRACES = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.S)
_GO_CONSTRUCT = re.compile(r"(?:if|else|end|range|with|define|template|block)\b|/\*|\$|\.|.*\s\.[A-Z]", re.S)
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # the last two and U+0085 end a line in YAML, too
#: what grows no further than the template and its values together: a loop, a call or "a" * 4000000000 would take the memory of the controller
_NODES = frozenset(
    ("Template", "Output", "TemplateData", "Name", "Const", "If", "CondExpr", "And", "Or", "Not", "Compare", "Operand", "Filter", "Test",
     "Concat", "List", "Tuple")
)  # fmt: skip
_FILTERS = frozenset(
    ("capitalize", "d", "default", "e", "escape", "int", "length", "lower", "string", "title", "tojson", "trim", "upper")
)
_REMEDY = "Write {{.Name}} or Jinja2 ({{ Name }}, {% if Name %} … {% endif %})."


def snake(name: str) -> str:
    """``ClusterCA`` -> ``cluster_ca``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def render(template: str, variables: t.Mapping[str, str]) -> str:
    """The template with its variables filled in.

    Raises InvalidInput for an unknown variable (naming it and the known ones), for other constructs of Go's templates, for a
    template that Jinja2 cannot read, and for a value that would break out of its line. Values appear in no message.
    """
    for name, value in variables.items():
        if _BREAKS.search(value):
            raise InvalidInput(f"The template variable {name} has more than one line; a value must be a single line.")
    known = {**variables, **{snake(name): value for name, value in variables.items()}}
    compiled, wanted = _compile(template)
    unknown = sorted(wanted - known.keys())
    if unknown:
        raise InvalidInput(
            "The machine config template uses what nobody provides.",
            problems=[_unknown(name, known) for name in unknown],
            remedy=f"Known variables: {', '.join(variables)}.",
        )
    try:
        return compiled.render(known)
    except (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # the error's own words could contain a value
        raise InvalidInput(f"The machine config template could not be rendered: {type(error).__name__}.", remedy=_REMEDY) from None


@functools.lru_cache(maxsize=32)
def _compile(template: str) -> tuple[jinja2.Template, frozenset[str]]:
    for match in _BRACES.finditer(template):
        inner = match[1]
        if not _GO_VARIABLE.fullmatch(match[0]) and _GO_CONSTRUCT.match(inner):
            line = template.count("\n", 0, match.start()) + 1
            raise InvalidInput(
                f"The machine config template has the Go construct {match[0]!r} in line {line}; only plain variables are taken.",
                remedy=_REMEDY,
            )
    environment = sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    text = _GO_VARIABLE.sub(lambda match: f"{{{{{match[1]} {match[2]} {match[3]}}}}}", template)
    try:
        tree = environment.parse(text)
        _check(tree)
        wanted = frozenset(meta.find_undeclared_variables(tree) - environment.globals.keys())
        return environment.from_string(tree), wanted
    except jinja2.TemplateSyntaxError as error:
        reason = f"line {error.lineno}: {error.message}"
        raise InvalidInput(f"The machine config template cannot be read: {reason}.", remedy=_REMEDY) from None


def _check(tree: nodes.Template) -> None:
    """InvalidInput for a construct whose result may be larger than what was written."""
    for node in tree.find_all(nodes.Node):
        word = type(node).__name__
        if word == "Filter" and (name := t.cast("nodes.Filter", node).name) not in _FILTERS:
            what, known = f"the filter {name!r}", f"the filters {', '.join(sorted(_FILTERS - {'d', 'e'}))}"
        elif word not in _NODES:
            what, known = f"the Jinja2 construct {word}", "variables, conditions (if) and filters"
        else:
            continue
        raise InvalidInput(
            f"The machine config template uses {what} in line {node.lineno}; only {known} are taken.", remedy=_REMEDY
        )


def _unknown(name: str, known: t.Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"The variable {name!r} is unknown" + (f"; did you mean {close[0]!r}?" if close else ".")
