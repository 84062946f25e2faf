# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placeholders of Go and of Jinja2."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.talos import config
from ansible_collections.tgp.gpu.plugins.module_utils.talos.spec import VARIABLES
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import render, snake

from tests.fixtures.talos_nodes import make

SEED = (
    "MachineToken", "ClusterCA", "ClusterID", "ClusterSecret", "ControlPlaneEndpoint", "ClusterName", "TailscaleAuthKey", "NodeName",
    "NodePool", "NodeIndex",
)  # fmt: skip


@pytest.mark.parametrize("name", SEED)
@pytest.mark.parametrize("form", ["{{.%s}}", "{{ .%s }}", "{{- .%s -}}", "{{ %s }}", "{{%s}}"])
def test_s0_17_every_variable_in_every_form(name, form):
    variables = make().variables()
    assert render(form % name, variables) == variables[name] != ""


@pytest.mark.parametrize(
    "name, plain",
    [("ClusterCA", "cluster_ca"), ("NodeName", "node_name"), ("KubernetesCA", "kubernetes_ca"), ("GPUType", "gpu_type")],
)
def test_snake_names(name, plain):
    assert snake(name) == plain
    assert render(f"{{{{ {plain} }}}}", make().variables()) == make().variables()[name]


def test_the_list_of_names_is_complete():
    assert tuple(make().variables()) == VARIABLES


def test_an_unknown_variable_is_named_with_the_known_ones():
    with pytest.raises(InvalidInput) as caught:
        render("{{.NodeNam}} {{ region }} {{ secret_sauce }}", make().variables())
    text = str(caught.value)
    assert "'NodeNam' is unknown; did you mean 'NodeName'?" in text and "'secret_sauce' is unknown" in text
    assert "Known variables: MachineToken, ClusterCA" in text and "region" not in text.split("Known")[0]


@pytest.mark.parametrize(
    "template",
    [
        "{{if .NodeName}}x{{end}}",
        "{{ range .Items }}{{ end }}",
        "{{ .NodeName | quote }}",
        '{{ printf "%s" .NodeName }}',
        "{{/* comment */}}",
        "{{ $x := 1 }}",
        "{{ .Values.name }}",
        '{{ template "x" . }}',
    ],
)
def test_other_go_constructs_are_refused_with_a_sentence(template):
    with pytest.raises(InvalidInput, match="Go construct"):
        render(f"a: 1\nb: {template}\n", make().variables())


def test_jinja_conditions_and_filters_work():
    text = "{% if GPUCount | int > 0 %}gpu: {{ NodeName | upper }}{% endif %}"
    assert render(text, make().variables()) == "gpu: TGP-ML-3F9A2C"


@pytest.mark.parametrize(
    "template",
    [
        "{{ NodeName.__class__.__mro__ }}",
        "{{ 1 / 0 }}",
        "{{ NodeName + 1 }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% if %}",
        "{{",
    ],
)
def test_what_cannot_be_rendered_is_an_error_without_values(template):
    with pytest.raises(InvalidInput) as caught:
        render(template, make().variables())
    assert not any(len(value) > 12 and value in str(caught.value) for value in make().variables().values())


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("a: 1\nb: {{ 'a' * 4000000000 }}", "the Jinja2 construct Mul in line 2"),
        ("{{ 9 ** 9 ** 9 }}", "the Jinja2 construct Pow in line 1"),
        ("{{ '%4000000000d' % 1 }}", "the Jinja2 construct Mod in line 1"),
        ("{{ '{:4000000000}'.format(1) }}", "the Jinja2 construct Call in line 1"),
        ("{{ 'a'.ljust(4000000000) }}", "the Jinja2 construct Call in line 1"),
        ("{{ NodeName | center(4000000000) }}", "the filter 'center' in line 1"),
        ("{{ NodeName | indent(4000000000) }}", "the filter 'indent' in line 1"),
        ("{{ NodeName | replace('a', NodeName) | replace('b', NodeName) }}", "the filter 'replace' in line 1"),
        ("{% for one in NodeName %}{{ one }}{% endfor %}", "the Jinja2 construct For in line 1"),
        ("{% set a = 'aaaaaaaa' %}" + "{% set a = a ~ a %}" * 40 + "{{ a }}", "the Jinja2 construct Assign in line 1"),
        ("{% macro a() %}x{% endmacro %}{{ a() }}", "the Jinja2 construct Macro in line 1"),
        ("{{ [NodeName] | tojson(4000000000) }}", "the filter 'tojson' with arguments in line 1"),
        ("{{ [NodeName] | tojson(*[4000000000]) }}", "the filter 'tojson' with arguments in line 1"),
        ("{{ [NodeName] | tojson(indent=4000000000) }}", "the Jinja2 construct Keyword in line 1"),
        ("{{ [NodeName, NodeName] | join(NodeName) }}", "the filter 'join' in line 1"),
        ("{{ '%4000000000d' | format(1) }}", "the filter 'format' in line 1"),
    ],
)
def test_a_template_cannot_take_the_memory_of_the_controller(template: str, what: str) -> None:
    """Whoever may write a class must not be able to end the process that reads it."""
    with pytest.raises(InvalidInput, match="only .* are taken") as caught:
        render(template, make().variables())
    assert what in str(caught.value)


HOSTILE = '\\\\"<&\U0001f600ß'
GROWING = {
    "tojson in tojson": "{{ NodeName" + " | tojson" * 60 + " }}",
    "lists in lists": "{{ " + "[" * 60 + "NodeName" + "] | string" * 60 + " }}",
    "escape of what was joined": "{{ " + "(" * 60 + "ClusterCA" + " | e ~ '')" * 60 + " }}",
    "a long list": "{{ [" + ", ".join(["ClusterCA"] * 1000) + "] | tojson }}",
    "a condition": "{% if NodeName" + " | tojson" * 60 + " == '' %}x{% endif %}",
    "constants, which Jinja2 could work out while it compiles": "{{ '" + HOSTILE + "'" + " | tojson" * 60 + " }}",
    "many expressions of moderate size": ("{{ NodeName" + " | tojson" * 14 + " }}") * 50,
}
VALUES = {"NodeName": HOSTILE, "ClusterCA": HOSTILE * 300}


@pytest.mark.parametrize("template", GROWING.values(), ids=list(GROWING))
def test_filters_that_together_take_too_much_are_stopped(template: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput) as caught:
            render(template, VALUES)
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()
    assert "The machine config template is too large: its filters take more than 1024 KiB of text." in str(caught.value)
    assert HOSTILE not in str(caught.value)


@pytest.mark.parametrize("template", ["{{ ClusterCA }}" * 900, "{{ " + " ~ ".join(["ClusterCA"] * 900) + " }}", "x" * (2**20 + 1)])
def test_a_result_that_is_too_large_is_refused(template: str) -> None:
    with pytest.raises(InvalidInput, match="is too large: its result has more than 1024 KiB of text"):
        render(template, VALUES)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ " + "(" * 2000 + "NodeName" + ")" * 2000 + " }}", "nested too deeply"),
        ("{{ NodeName" + " | upper" * 1200 + " }}", "nested too deeply"),
        ("{{ " + "not " * 2000 + "NodeName }}", "nested too deeply"),
        ("{% if NodeName %}" * 300 + "{% endif %}" * 300, "nested too deeply"),
        ("{{ [" + "NodeName, " * 200_000 + "] | length }}", "more than 5000 words and signs of Jinja2"),
    ],
)
def test_a_template_that_is_costly_to_compile_is_refused(template: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        render(template, make().variables())
    assert "The machine config template is too large" in str(caught.value) and why in str(caught.value)


def test_a_value_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidInput, match="The template variable ClusterCA is too long: it has more than 16 KiB"):
        render("{{ ClusterCA }}", {"ClusterCA": "x" * (16 * 1024 + 1)})


@pytest.mark.parametrize("template", ["{{" * 100_000, "{{ a" + " " * 100_000 + "b }}"])
def test_braces_without_end_and_spaces_are_read_in_one_pass(template: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be read|is too large"):
        render(template, make().variables())


FILTER_CALLS = [
    "capitalize", "d", "d('x')", "default", "default('x')", "e", "escape", "int", "int(1, 16)", "length", "lower", "string", "title",
    "tojson", "trim", "trim('a')", "upper",
]  # fmt: skip


@pytest.mark.parametrize("call", FILTER_CALLS)
@pytest.mark.parametrize("value", [HOSTILE, "\x01\x7f\U000e0001", "\u0390\u1f56", "a-ж-ж", "0x" + "f" * 999, "<&>\"'"])
def test_a_filter_makes_at_most_twelve_characters_of_one(call: str, value: str) -> None:
    """What is counted is what goes in."""
    text = value * 50
    for expression, taken in ((json.dumps(text), len(text)), (json.dumps([text] * 20), 20 * len(text))):
        try:
            assert len(render(f"{{{{ {expression} | {call} }}}}", {})) <= 12 * taken + 2
        except InvalidInput as error:
            assert "could not be rendered" in str(error)  # a list is not trimmed


def test_a_patch_that_grows_is_named() -> None:
    spec = make(patches=("machine: {}", GROWING["tojson in tojson"]))
    with pytest.raises(InvalidInput, match=r"talosConfig.patches\[1\] is too large: its filters take"):
        config.build(spec)


def test_large_templates_of_plain_use_are_taken() -> None:
    """A certificate a hundred times, a file of half a MiB, a filter on each."""
    certificate = "ab+/" * 500
    text = "a: {{ ClusterCA | trim | tojson }}\n" * 100 + "x" * 2**19
    assert len(render(text, {"ClusterCA": certificate})) == 100 * (2002 + 4) + 2**19


@pytest.mark.parametrize(
    "template",
    [
        "{% if NodeName == 'tgp-ml-3f9a2c' and not GPUCount | int > 8 %}x{% elif NodePool in ['a', 'b'] %}y{% else %}z{% endif %}",
        "{{ NodePool | default('none') | trim | tojson }}{{ 'a' ~ NodeName | length }}{{ 'x' if NodeName is defined else 'y' }}",
    ],
)
def test_conditions_and_harmless_filters_are_taken(template: str) -> None:
    assert render(template, make().variables())


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\u2029"])
def test_whatever_ends_a_line_in_yaml_is_refused_in_a_value(end):
    """The name of a region comes from a cloud."""
    with pytest.raises(InvalidInput, match="Region has more than one line"):
        render("machine: {}\nregion: {{ Region }}\n", {"Region": f"here{end}cluster: 1"})


def test_a_value_of_several_lines_is_refused():
    with pytest.raises(InvalidInput, match="NodePool"):
        render("{{.NodePool}}", {**make().variables(), "NodePool": "a\nb: c"})
