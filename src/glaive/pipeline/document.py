"""Read the file of a pipeline, and check the whole file before a step runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from glaive.dataclass import dataclass
from glaive.errors import GlaiveError, OptionError
from glaive.io.storage_options import normalise_options
from glaive.options import TEXT, Kind, UnfitError, kind_of, read_table, shown
from glaive.pipeline.runs import DatasetName, Pipeline, Step, dependencies
from glaive.pipeline.steps import KINDS
from glaive.spark.launch import SECRET_SETTING, STORE_OPTIONS

# --- Parameters of a pipeline: ``${name}`` in its strings -------------------------------

_PARAMETER: Final = re.compile(r"\$(\$|\{([^{}]*)\})")


def chosen_parameters(
    defaults: Mapping[str, Any],
    given: Mapping[str, Any],
    where: str,
    credentials: Container[str] = (),
) -> dict[str, Any]:
    """Return the defaults of a file, replaced by the values of a run.

    Strings become the type of the default. Messages hide the values of ``credentials``.

    Raises
    ------
    OptionError
        The file lacks the parameter, or the value has another type.
    """
    chosen = dict(defaults)
    for name, default in defaults.items():
        if not isinstance(default, str | int | float | bool):
            raise OptionError(
                f"{where}, key parameters.{name}: expected a string, number, true or false, found "
                f"{shown(default, hidden=name in credentials)}"
            )
    for name, value in given.items():
        if name not in defaults:
            raise OptionError(
                f"{where}: the parameter {name!r} does not exist"
                f"{OptionError.did_you_mean(name, defaults)}"
            )
        at, hidden = f"{where}, parameter {name}", name in credentials
        chosen[name] = _typed(value, defaults[name], at, hidden=hidden)
    return chosen


def _typed(value: Any, default: Any, where: str, *, hidden: bool) -> Any:
    if isinstance(default, str):
        return f"{value}"
    kind, made = kind_of(type(default)), None
    if isinstance(value, str):
        with suppress(ArithmeticError, ValueError):
            made = kind.text(value.strip())
    return kind.check(where, value if made is None else made, hidden=hidden)


def substituted(value: Any, parameters: Mapping[str, Any], where: str) -> Any:
    """Fill parameters into a value of a file, at any depth; ``$$`` is a dollar sign.

    A string that consists of ``${name}`` becomes the value with its type.

    Raises
    ------
    OptionError
        A parameter is unknown.
    """
    if isinstance(value, dict):
        return {
            key: substituted(one, parameters, f"{where}, key {key}") for key, one in value.items()
        }
    if isinstance(value, list):
        return [substituted(one, parameters, where) for one in value]
    if not isinstance(value, str):
        return value

    def filled(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else str(_parameter(match[2], parameters, where))

    whole = _PARAMETER.fullmatch(value)
    if whole and whole[2] is not None:
        return _parameter(whole[2], parameters, where)
    return _PARAMETER.sub(filled, value)


def parameters_in(value: Any) -> frozenset[str]:
    """Return the names of the parameters in a value of a file, at any depth."""
    return frozenset[str]().union(*map(_names_in, _texts_in(value)))


def hidden_parameters_in(value: Any, parameters: Mapping[str, Any] | None = None) -> frozenset[str]:
    """Return the parameters that are part of a password or a key of a URL, at any depth.

    With ``parameters``, also the parameters whose values contain such a part: one may be a URL.
    """
    hidden = frozenset[str]().union(*map(_hidden_in, _texts_in(value)))
    if parameters is None:
        return hidden
    added = (_partly_hidden(text, parameters) for text in (*_texts_in(value), *_each(parameters)))
    return hidden.union(*added)


def _hidden_in(text: str) -> frozenset[str]:
    """Return names in a string at positions that are always hidden."""
    return _names_in(text) - _names_in(GlaiveError.without_secrets(text))


def _partly_hidden(text: str, parameters: Mapping[str, Any]) -> frozenset[str]:
    """Return names in a string whose values are not shown as a whole after they are filled in."""
    filled = _PARAMETER.sub(lambda found: str(parameters.get(found[2], "$")), text)
    seen = GlaiveError.without_secrets(filled)
    if seen == filled:
        return frozenset()
    return frozenset(name for name in _names_in(text) if str(parameters.get(name, "")) not in seen)


def _each(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield a string for each parameter that consists of the parameter."""
    return (f"${{{name}}}" for name in parameters)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(one)
    elif isinstance(value, str):
        yield value


def _names_in(text: str) -> frozenset[str]:
    return frozenset(match[2] for match in _PARAMETER.finditer(text) if match[2] is not None)


def _parameter(name: str, parameters: Mapping[str, Any], where: str) -> Any:
    if name not in parameters:
        raise OptionError(
            f"{where}: the parameter {name!r} does not exist"
            f"{OptionError.did_you_mean(name, parameters)}. Add it to the table "
            "[parameters], or write $$ for a dollar sign"
        )
    return parameters[name]


_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")
_MAX_BYTES: Final = 1 << 20
_LAZY_TABLES: Final = ("parameters", "steps")
_OPTIONS: Final = ("arguments", "options", "write_options")
"""Keys of steps with options of formats, writes and functions, under any names."""


@dataclass(frozen=True, kw_only=True)
class _Spark:
    """The table ``[spark]``."""

    master: str | None = None
    remote: str | None = field(default=None, repr=False)
    conf: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class _Head:
    """The keys of a file, including its steps."""

    name: str = ""
    description: str = ""
    runs: str | None = None
    modules: tuple[str, ...] = ()
    parameters: Mapping[str, Any] | None = field(default=None, repr=False)
    datasets: Mapping[str, str] | None = None
    storage: Mapping[str, str | bool | tuple[str, ...]] | None = field(default=None, repr=False)
    spark: Mapping[str, Any] | None = field(default=None, repr=False)
    steps: Mapping[str, Mapping[str, Any]] | None = None


def load(file: str | os.PathLike[str], parameters: Mapping[str, Any] | None = None) -> Pipeline:
    """Read and check the file of a pipeline.

    Parameters
    ----------
    file
        Path of a TOML file.
    parameters
        Values for the parameters of the file, by name; default: the values in the file.

    Raises
    ------
    OptionError
        The file is missing or wrong. The message names file, step and key, and a valid value.
    """
    path = Path(file).absolute()
    where = os.fspath(file)
    tables = _parsed(path, where)
    first = {key: table for key, table in tables.items() if key == "parameters"}
    declared = read_table(_Head, first, where).parameters or {}
    credentials = _credentials(tables)
    chosen = chosen_parameters(declared, parameters or {}, where, credentials)
    credentials |= hidden_parameters_in(_urls_in(tables), chosen)
    filled = {
        key: value if key in _LAZY_TABLES else substituted(value, chosen, f"{where}, key {key}")
        for key, value in tables.items()
    }
    head = read_table(_Head, filled, where)
    name = _checked_name(head.name or path.stem, f"{where}, key name")
    datasets = {
        _checked_name(dataset, f"{where}, table datasets"): _located(path.parent, uri)
        for dataset, uri in (head.datasets or {}).items()
    }
    steps: dict[str, Step] = {}
    digests = {}
    for step, table in (head.steps or {}).items():
        at = f"{where}, step {_checked_name(step, f'{where}, table steps')}"
        keys = substituted(dict(table), chosen, at)
        digests[step] = _digest(keys, datasets)
        steps[step] = _step(keys, datasets, at)
    if not steps:
        raise OptionError(f"{where}: the file has no steps. Add a table such as [steps.first]")
    ordered, depends = dependencies(steps, datasets, where)
    spark = read_table(_Spark, head.spark or {}, f"{where}, table spark")
    modules = tuple(path.parent / module for module in head.modules)
    for module in modules:
        if not module.is_file():
            raise OptionError(f"{where}, key modules: {module} is not a file. Correct the path")
    return Pipeline(
        name=name,
        file=path,
        description=head.description,
        parameters=chosen,
        credentials=credentials,
        datasets=datasets,
        storage=normalise_options(head.storage),
        master=spark.master,
        remote=spark.remote,
        conf=spark.conf or {},
        modules=modules,
        runs=_located(path.parent, head.runs or f"{path.stem}.runs"),
        steps=ordered,
        depends=depends,
        digests=digests,
    )


def _credentials(tables: Mapping[str, Any]) -> frozenset[str]:
    """Return the parameters in settings of stores, and in secret settings, options and URLs."""
    settings, steps = _table(tables, "spark"), _table(tables, "steps")
    named = [_table(settings, "conf")]
    named += [_table(steps[step], key) for step in steps for key in _OPTIONS]
    secret = [
        value
        for table in named
        for key, value in table.items()
        if SECRET_SETTING.search(key) or re.search(STORE_OPTIONS, key)
    ]
    filled = parameters_in([tables.get("storage"), settings.get("remote"), secret])
    return filled | hidden_parameters_in(_urls_in(tables))


def _table(tables: Any, key: str) -> Mapping[str, Any]:
    """Return a table in another, unchecked table; return an empty one if it is missing."""
    found = tables.get(key) if isinstance(tables, dict) else None
    return found if isinstance(found, dict) else {}


def _urls_in(tables: Mapping[str, Any]) -> list[Any]:
    """Return the values of a file that may have URLs."""
    return [tables.get(key) for key in ("datasets", "steps", "runs")]


def _parsed(path: Path, where: str) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise OptionError(f"{where}: larger than 1 MiB. Name the file of a pipeline")
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise OptionError(f"{where}: {error.strerror}. Name the file of a pipeline") from error
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, UnicodeDecodeError
        yaml = path.suffix in (".yml", ".yaml")
        hint = f". Spark's own pipelines: spark-pipelines run --spec {where}" if yaml else ""
        raise OptionError(f"{where}: not TOML: {error}{hint}") from error
    return tables


def _step(table: dict[str, Any], datasets: Mapping[str, str], where: str) -> Step:
    kind = table.pop("kind", None)
    if kind not in KINDS:
        if kind is None:
            raise OptionError(f"{where}: the key 'kind' is missing: one of {', '.join(KINDS)}")
        raise OptionError(
            f"{where}, key kind: {kind!r}{OptionError.did_you_mean(str(kind), KINDS)}"
        )
    made = KINDS[kind]

    def named(given: Any) -> str:
        name: str = TEXT.of(given)
        if name not in datasets:
            raise UnfitError(
                f"{name!r} is not a name in the table [datasets]"
                f"{OptionError.did_you_mean(name, datasets)}"
            )
        return name

    step = read_table(made, table, where, {DatasetName: Kind("the name of a dataset", named)})
    try:
        step.check()
    except OptionError as error:
        raise OptionError(f"{where}, key {error}") from None
    return step


def _digest(table: Mapping[str, Any], datasets: Mapping[str, str]) -> str:
    text = json.dumps([table, dict(datasets)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _checked_name(name: str, where: str) -> str:
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"{where}: {name!r:.60} is not a name. Use up to 41 letters, digits, '_' and '-', a "
            "letter first"
        )
    return name


def _located(folder: Path, text: str) -> str:
    """Return a path or URI; relative paths start at the folder of the file."""
    if "://" in text:
        return text
    return str(folder / Path(text).expanduser())
