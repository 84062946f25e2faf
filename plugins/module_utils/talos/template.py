# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A class's template text, filled in. Go's ``{{.Name}}`` and Jinja2's ``{{ Name }}`` / ``{{ node_name }}`` both work."""

from __future__ import annotations

import difflib
import functools
import itertools
import re
import typing as t

from ..core.errors import InvalidInput, lazy

if t.TYPE_CHECKING:
    import jinja2
    import yaml
    from jinja2 import filters, meta, nodes, sandbox
else:
    jinja2 = lazy("jinja2")
    filters = lazy("jinja2.filters")
    meta = lazy("jinja2.meta")
    nodes = lazy("jinja2.nodes")
    sandbox = lazy("jinja2.sandbox")
    yaml = lazy("yaml", "pyyaml")


_GO_VARIABLE = re.compile(r"\{\{(-?)\s*\.([A-Za-z_]\w*)\s*(-?)\}\}")
_BRACES = re.compile(r"\{\{-?(.*?)-?\}\}", re.S)
_GO_CONSTRUCT = re.compile(r"(?:if|else|end|range|with|define|template|block)\b|/\*|\$|\.|.*\s\.[A-Z]", re.S)
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # the last two and U+0085 end a line in YAML, too
#: what grows no further than the template and its values together: a loop, a call or "a" * 4000000000 would take the memory of the controller
_NODES = frozenset(
    ("Template", "Output", "TemplateData", "Name", "Const", "If", "CondExpr", "And", "Or", "Not", "Compare", "Operand", "Filter", "Test",
     "Concat", "List", "Tuple")
)  # fmt: skip
#: a result of theirs has at most twelve characters for each one that goes in
_FILTERS = frozenset(
    ("capitalize", "d", "default", "e", "escape", "int", "length", "lower", "string", "title", "tojson", "trim", "upper")
)
_ARGUMENTS = frozenset(("d", "default", "int", "trim"))  # the only filters that take arguments: an indent of tojson is a size
_LONGEST_VALUE = 16 * 1024  # characters of a variable
_LARGEST = 1024 * 1024  # characters that all filters of a template take together, and of the result
_TOKENS = 5000  # of Jinja2 in one template
_FILTERED = "characters filtered"  # no name, so that no template can read it
_REMEDY = "Write {{.Name}} or Jinja2 ({{ Name }}, {% if Name %} … {% endif %})."


def snake(name: str) -> str:
    """``ClusterCA`` -> ``cluster_ca``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def render(template: str, variables: t.Mapping[str, str], label: str = "The machine config template") -> str:
    """The template with its variables filled in. ``label`` begins the messages.

    Raises InvalidInput for an unknown variable (naming it and the known ones), for other constructs of Go's templates, for a
    template that Jinja2 cannot read or that becomes too large, and for a value that would break out of its line. Values appear in
    no message.
    """
    for name, value in variables.items():
        if _BREAKS.search(value):
            raise InvalidInput(f"The template variable {name} has more than one line; a value must be a single line.")
        if len(value) > _LONGEST_VALUE:
            raise InvalidInput(f"The template variable {name} is too long: it has more than {_LONGEST_VALUE // 1024} KiB.")
    values = {**variables, **{snake(name): value for name, value in variables.items()}}
    try:
        compiled, wanted = _compile(template, label)
        unknown = sorted(wanted - values.keys())
        if not unknown:
            return _joined(
                compiled.generate({**values, _FILTERED: _Budget(label, "its filters take")}), _Budget(label, "its result has")
            )
    except (RecursionError, MemoryError, SyntaxError):
        raise InvalidInput(f"{label} is too large: its expressions are nested too deeply.", remedy=_REMEDY) from None
    except (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError) as error:
        # the error's own words could contain a value
        raise InvalidInput(f"{label} could not be rendered: {type(error).__name__}.", remedy=_REMEDY) from None
    raise InvalidInput(
        f"{label} uses what nobody provides.",
        problems=[_unknown(name, values) for name in unknown],
        remedy=f"Known variables: {', '.join(variables)}.",
    )


@functools.lru_cache(maxsize=32)
def _compile(template: str, label: str) -> tuple[jinja2.Template, frozenset[str]]:
    for match in _BRACES.finditer(template, 0, template.rfind("}}") + 2):
        inner = match[1].strip()
        if not _GO_VARIABLE.fullmatch(match[0]) and _GO_CONSTRUCT.match(inner):
            line = template.count("\n", 0, match.start()) + 1
            raise InvalidInput(
                f"{label} has the Go construct {match[0]!r} in line {line}; only plain variables are taken.", remedy=_REMEDY
            )
    environment = sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    environment.filters = {name: _budgeted(environment.filters[name]) for name in _FILTERS}
    text = _GO_VARIABLE.sub(lambda match: f"{{{{{match[1]} {match[2]} {match[3]}}}}}", template)
    try:
        if sum(1 for _token in itertools.islice(environment.lex(text), _TOKENS + 1)) > _TOKENS:
            raise InvalidInput(f"{label} is too large: it has more than {_TOKENS} words and signs of Jinja2.", remedy=_REMEDY)
        tree = environment.parse(text)
        _check(tree, label)
        wanted = frozenset(meta.find_undeclared_variables(tree) - environment.globals.keys())
        return environment.from_string(tree), wanted
    except jinja2.TemplateSyntaxError as error:
        reason = f"line {error.lineno}: {error.message}"
        raise InvalidInput(f"{label} cannot be read: {reason}.", remedy=_REMEDY) from None


def _check(tree: nodes.Template, label: str) -> None:
    """InvalidInput for a construct whose result may be larger than what was written, whatever that is."""
    for node in tree.find_all(nodes.Node):
        word = type(node).__name__
        name = t.cast("nodes.Filter", node).name if word == "Filter" else ""
        if name and name not in _FILTERS:
            construct, allowed = f"the filter {name!r}", f"the filters {', '.join(sorted(_FILTERS - {'d', 'e'}))}"
        elif name and name not in _ARGUMENTS and (getattr(node, "args", None) or getattr(node, "dyn_args", None)):
            construct, allowed = f"the filter {name!r} with arguments", "those of default, int and trim"
        elif word not in _NODES:
            construct, allowed = f"the Jinja2 construct {word}", "variables, conditions (if) and filters"
        else:
            continue
        raise InvalidInput(f"{label} uses {construct} in line {node.lineno}; only {allowed} are taken.", remedy=_REMEDY)


class _Budget:
    """Counts characters up to the limit. ``label`` names what is rendered; ``took`` begins what the message says of the limit."""

    def __init__(self, label: str, took: str) -> None:
        self._message = f"{label} is too large: {took} more than {_LARGEST // 1024} KiB of text."
        self._characters = 0

    def spend(self, characters: int) -> None:
        """InvalidInput when the limit is exceeded."""
        self._characters += characters
        if self._characters > _LARGEST:
            raise InvalidInput(self._message, remedy="Apply a filter once, and write long text into the template itself.")


def _joined(pieces: t.Iterable[str], budget: _Budget) -> str:
    taken = []
    for piece in pieces:
        budget.spend(len(piece))
        taken.append(piece)
    return "".join(taken)


def _budgeted(function: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
    """The filter, refused before it works when all filters together have taken too much: ``\\`` is twice as long after each of many
    ``tojson``. As it needs the context, Jinja2 does not apply it to constants while it compiles."""

    @jinja2.pass_context
    def filtered(context: jinja2.runtime.Context, value: t.Any, *arguments: t.Any) -> t.Any:
        context[_FILTERED].spend(_length(value))
        if function is filters.do_tojson:
            return function(context.eval_ctx, value)
        return function(value, *arguments)

    return filtered


def _length(value: t.Any) -> int:
    if isinstance(value, str):
        return len(value)
    return 2 + sum(_length(entry) + 2 for entry in value) if isinstance(value, list | tuple) else 32


def _unknown(name: str, names: t.Collection[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"The variable {name!r} is unknown" + (f"; did you mean {close[0]!r}?" if close else ".")


# ---- talos configuration as data: several YAML documents read strictly, written so that Talos reads back what was meant. Talos decodes
# YAML 1.2 and refuses a key written twice; PyYAML speaks 1.1 and keeps the last one silently. The loader here takes the difference away:
# only ``true``/``false`` are booleans, dates stay text, ``0o600`` is a number, a repeated key is an error

Document = dict[str, t.Any]
_TAGS = (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*|0o?[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    ("merge", r"^<<$", "<"),
)


class _Repeated(Exception):
    """A key occurs twice in one mapping."""

    def __init__(self, key: str, line: int) -> None:
        super().__init__(key)
        self.key, self.line = key, line


class _NoText(Exception):
    """A key is a mapping or a list, as ``{{ Name }}`` is to YAML."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


@functools.cache
def _loader() -> t.Any:
    """The loader class; made at first use because PyYAML is imported lazily."""
    base: t.Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: t.ClassVar[dict[str, t.Any]] = {}

        def construct_mapping(self, node: t.Any, deep: bool = False) -> t.Any:
            seen: set[str] = set()
            for key, _value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise _NoText(key.start_mark.line + 1)
                if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                    raise _Repeated(str(key.value), key.start_mark.line + 1)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    for name, pattern, first in _TAGS:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(pattern), ["" if c == "\0" else c for c in first])

    def integer(loader: t.Any, node: t.Any) -> int:
        text = node.value
        body = text.lstrip("+-")
        base = 16 if body.startswith("0x") else 8 if len(body) > 1 and body[0] == "0" else 10
        return int(body.removeprefix("0x").removeprefix("0o"), base) * (-1 if text.startswith("-") else 1)

    def real(loader: t.Any, node: t.Any) -> float:
        return float(node.value)

    Loader.add_constructor("tag:yaml.org,2002:int", integer)
    Loader.add_constructor("tag:yaml.org,2002:float", real)
    return Loader


@functools.cache
def _dumper() -> t.Any:
    """A dumper that quotes whatever either YAML version would take for something else than text."""
    base: t.Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]
        def ignore_aliases(self, data: t.Any) -> bool:
            return True

    def text(dumper: t.Any, value: str) -> t.Any:
        plain = str.__str__(value)  # the emitter in C takes nothing but the type itself
        return dumper.represent_scalar("tag:yaml.org,2002:str", plain, style="|" if "\n" in plain else None)

    Dumper.add_representer(str, text)
    # Ansible hands over subclasses of the plain types
    Dumper.add_multi_representer(str, text)
    for kind, represent in ((dict, base.represent_dict), (list, base.represent_list), (int, base.represent_int)):
        Dumper.add_multi_representer(kind, represent)
    for name, pattern, first in _TAGS[2:4]:
        Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(pattern), list(first))
    return Dumper


def parse(text: str, label: str) -> list[Document]:
    """The documents of ``text`` (empty ones left out). ``label`` names the text in errors.

    Raises InvalidInput with the line, never with the text itself: it may hold secrets.
    """
    try:
        documents = [document for document in yaml.load_all(text, Loader=_loader()) if document is not None]
    except _Repeated as error:
        raise InvalidInput(f"{label}: line {error.line} has the key {error.key!r} a second time; write it once.") from None
    except _NoText as error:
        raise InvalidInput(
            f"{label}: line {error.line} has a mapping or a list where a key should be; are the braces of a variable ({{{{ … }}}}) left in it?"
        ) from None
    except (
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ):  # of a value that is not what its tag says; its words could hold the value
        raise InvalidInput(f"{label} is not valid YAML: a value is not what its tag says it is.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "an unknown place"
        reason = getattr(error, "problem", None) or "it cannot be read"
        raise InvalidInput(f"{label} is not valid YAML: {place}: {reason}.") from None
    for number, document in enumerate(documents, 1):
        if not isinstance(document, dict):
            raise InvalidInput(f"{label}: document {number} is not a mapping of fields.")
    try:
        return t.cast("list[Document]", _apart(documents))
    except RecursionError:
        raise InvalidInput(f"{label} has a YAML alias that refers to itself.") from None


def _apart(value: t.Any) -> t.Any:
    """A copy in which what YAML aliases shared is no longer shared, so that one place can be changed alone."""
    if isinstance(value, dict):
        return {key: _apart(item) for key, item in value.items()}
    return [_apart(item) for item in value] if isinstance(value, list) else value


def to_yaml(documents: t.Sequence[Document]) -> str:
    """The documents as one YAML stream, keys in their order, long lines kept whole."""
    return t.cast(str, yaml.dump_all(documents, Dumper=_dumper(), sort_keys=False, default_flow_style=False, width=4096))


def machine_document(documents: t.Sequence[Document]) -> Document | None:
    """The v1alpha1 machine configuration among the documents: the one without ``kind``."""
    return next((document for document in documents if "kind" not in document), None)


def of_kind(documents: t.Sequence[Document], kind: str, name: str | None = None) -> Document | None:
    """The first document of a kind (and name)."""
    return next((d for d in documents if d.get("kind") == kind and (name is None or d.get("name") == name)), None)


def at(document: t.Mapping[str, t.Any] | None, path: str) -> t.Any:
    """The value at a dotted path, None when any part of it is absent."""
    value: t.Any = document
    for part in path.split("."):
        if not isinstance(value, t.Mapping):
            return None
        value = value.get(part)
    return value


def items_at(document: t.Mapping[str, t.Any] | None, path: str) -> list[t.Any]:
    """The entries of the list at a dotted path; none when there is something else."""
    value = at(document, path)
    return value if isinstance(value, list) else []


def fields_at(document: t.Mapping[str, t.Any] | None, path: str) -> dict[str, t.Any]:
    """The mapping at a dotted path; an empty one when there is something else."""
    value = at(document, path)
    return value if isinstance(value, dict) else {}
