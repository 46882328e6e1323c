"""Files of pipelines: what is read from them, and what is refused before anything runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.main import cli as main
from glaive.cli.pipeline import UNFINISHED, WRONG_FILE
from glaive.cli.pipeline import pipeline as cli
from glaive.dataset.refs import Branches
from glaive.errors import NotFoundError, OptionError
from glaive.pipeline import RunRecord, Runs, StepContext, StepRecord, load, plan, render_report, run
from glaive.pipeline.steps import KINDS

SHOP = """
name = "shop"
[parameters]
folder = "in"
minimum = 1
[datasets]
shop = "shop.lance"
new = "${folder}/new.lance"
[steps.load]
kind = "ingest"
source = "${folder}/*.csv"
target = "new"
expect = "price > ${minimum}"
[steps.cheap]
kind = "sql"
query = "SELECT name, price AS shop FROM new WHERE price < $$5"
target = "shop"
[steps.merge]
kind = "merge"
source = "new"
target = "shop"
on = "id"
[steps.reload]
kind = "ingest"
source = "more"
target = "new"
mode = "overwrite"
after = "note"
[steps.note]
kind = "python"
function = "notes:note"
"""


def written(folder: Path, text: str = SHOP) -> Path:
    file = folder / "shop.toml"
    file.write_text(text)
    return file


def test_steps_wait_for_those_whose_datasets_they_use(tmp_path: Path) -> None:
    pipeline = load(written(tmp_path))
    assert list(pipeline.steps) == ["load", "cheap", "merge", "note", "reload"]
    assert pipeline.depends == {
        "load": (),
        "cheap": ("load",),
        "merge": ("load", "cheap"),
        "note": (),
        "reload": ("note", "load", "cheap", "merge"),
    }


def test_parameters_are_filled_in_and_keep_their_types(tmp_path: Path) -> None:
    text = SHOP.replace('kind = "merge"', 'kind = "vacuum"\nretention_hours = "${minimum}"')
    text = text.replace('source = "new"\ntarget = "shop"\non = "id"', 'target = "shop"')
    pipeline = load(written(tmp_path, text), {"folder": "s3://shop", "minimum": "24"})
    assert pipeline.datasets["new"] == "s3://shop/new.lance"
    assert pipeline.datasets["shop"] == str(tmp_path / "shop.lance")
    summaries = [step.summary() for step in pipeline.steps.values()]
    assert summaries[0] == "create new from s3://shop/*.csv"
    assert summaries[1].endswith("WHERE price < $5")
    assert summaries[2] == "delete versions of shop older than 24 hours"


@pytest.mark.parametrize("hours", ["-1", "nan", "inf", "1e300"])
def test_ages_that_are_too_long_or_negative_are_refused(tmp_path: Path, hours: str) -> None:
    text = SHOP.replace('kind = "merge"', f'kind = "vacuum"\nretention_hours = {hours}')
    text = text.replace('source = "new"\ntarget = "shop"\non = "id"', 'target = "shop"')
    with pytest.raises(OptionError, match="retention_hours: expected a number from 0 to"):
        load(written(tmp_path, text), {"folder": "s3://shop"})


def test_a_plan_names_versions_and_changes_nothing(tmp_path: Path) -> None:
    glaive.write_dataset(pa.table({"id": [1]}), str(tmp_path / "shop.lance"))
    steps = {step.name: step for step in plan(load(written(tmp_path)))}
    assert (steps["merge"].reads, steps["merge"].writes) == ({"new": None, "shop": 1}, {"shop": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.lance", "shop.toml"]


def test_a_dataset_that_nothing_makes_is_missed_before_anything_runs(tmp_path: Path) -> None:
    text = '[datasets]\nnew = "n.lance"\nshop = "s.lance"\n[steps.merge]\nkind = "merge"\n'
    text += 'source = "new"\ntarget = "shop"\non = "id"\n'
    with pytest.raises(OptionError, match=r"step merge: it reads the dataset 'new', which does"):
        plan(load(written(tmp_path, text)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "shop"', "name = ", "not TOML"),
        ('name = "shop"', 'name = "a shop"', "key name: 'a shop' is not a name"),
        ('name = "shop"', 'title = "shop"', "unknown key 'title'"),
        ('kind = "merge"', 'kind = "merg"', "step merge, key kind: 'merg'; did you mean 'merge'?"),
        ('kind = "merge"', "", "step merge: the key 'kind' is missing: one of add_columns, dedupe"),
        ('on = "id"', "", "step merge: the key 'on' is missing: a list of strings"),
        ('on = "id"', "on = 1", "step merge, key on: expected a string, found 1"),
        ('on = "id"', 'on = "id"\nonn = 1', "step merge: unknown key 'onn'; did you mean 'on'?"),
        ('on = "id"', 'on = "id"\nquery = "SELECT 1"', "key source: give either the key source"),
        ('on = "id"', 'on = "id"\nwhen_matched = "x"', "expected one of 'update', 'delete'"),
        ('on = "id"', 'on = "id"\nquarantine = "shop"', "key quarantine: name another dataset"),
        ('source = "new"', 'source = "old"', "key source: 'old' is not a name in the table"),
        ('after = "note"', 'after = "nothing"', "key after: the step 'nothing' does not exist"),
        ('kind = "python"', 'kind = "python"\nafter = "reload"', "steps wait for each other"),
        ("notes:note", "notes", "key function: expected 'module:function', found 'notes'"),
        ("${minimum}", "${least}", "step load, key expect: the parameter 'least' does not exist"),
        ("minimum = 1", "minimum = [1]", "key parameters.minimum: expected a string, number"),
        ("SELECT name", "SELEC name", "step cheap, key query"),
        ("SELECT name, price AS shop", "DELETE", "key query: expected a query, found DELETE"),
        ('mode = "overwrite"', 'mode = "merge"', "key merge_keys: name key columns"),
        ('mode = "overwrite"', 'format = "xls"', "key format: expected one of 'csv', 'json'"),
        ('mode = "overwrite"', "expect = {a = 1}", "key expect.a: expected a string, found 1"),
        (
            'mode = "overwrite"',
            'expect = "a"\non_violation = "quarantine"',
            "key on_violation='quarantine': name the dataset",
        ),
        ('name = "shop"', 'modules = "none.py"', "none.py is not a file. Correct the path"),
    ],
)
def test_what_is_wrong_is_named_with_step_key_and_remedy(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in SHOP
    file = written(tmp_path, SHOP.replace(old, new, 1))
    with pytest.raises(OptionError) as caught:
        load(file)
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)


def test_parameters_of_a_run_are_those_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    with pytest.raises(OptionError, match="the parameter 'minimun' does not exist; did you mean"):
        load(file, {"minimun": 3})
    with pytest.raises(OptionError, match="parameter minimum: expected an integer, found 'x'"):
        load(file, {"minimum": "x"})
    for number in (float("inf"), float("nan"), 1.5):
        with pytest.raises(OptionError, match="parameter minimum: expected an integer, found"):
            load(file, {"minimum": number})


def no_session() -> Any:
    raise ConnectionError


@pytest.mark.spec("rel-27")
def test_parameters_that_are_credentials_are_in_no_record_report_or_message(tmp_path: Path) -> None:
    text = SHOP.replace(
        "minimum = 1", 'minimum = 1\nkey = "MARKED-0"\npass = "no"\nend = "no"\nshared = ""'
    )
    text += """
[storage]
aws_secret_access_key = "${key}"
[spark]
remote = "sc://host/;token=${end}"
[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "x${pass}"
"spark.hadoop.fs.azure.sas.c.a.net" = "${shared}"
"spark.app.name" = "${folder}"
"""
    given = {"key": "MARKED-1", "pass": "MARKED-2", "end": "MARKED-3", "folder": "far"}
    given["shared"] = "sig=MARKED-4"
    pipeline = load(written(tmp_path, text), given)
    assert pipeline.storage == {"aws_secret_access_key": "MARKED-1"}
    assert pipeline.conf["spark.hadoop.fs.s3a.secret.key"] == "xMARKED-2"
    runs = Runs.of(pipeline)
    record = runs.start(pipeline, "one")
    spark: Any = None
    context = StepContext(
        spark=spark, name="x", job_id="x", datasets={}, parameters=given, storage=pipeline.storage
    )
    shown = [repr(pipeline), repr(context), repr(record), render_report(pipeline, record)]
    shown += [path.read_text() for path in (tmp_path / "shop.runs").rglob("*") if path.is_file()]
    assert record.parameters == {"folder": "far", "minimum": 1}
    with pytest.raises(OptionError, match="it had the parameters") as refused:
        run(load(written(tmp_path, text), {**given, "folder": "near"}), record=runs.find("one"))
    assert "MARKED" not in "".join([*shown, str(refused.value)])
    # It goes on with other credentials, as these may have expired.
    again = load(written(tmp_path, text), {**given, "key": "new"})
    with pytest.raises(ConnectionError):
        run(again, no_session, record=runs.find("one"))
    # So does one that an earlier release began, whose record has them.
    older = replace(runs.find("one"), parameters={**given, "minimum": 1})
    with pytest.raises(ConnectionError):
        run(again, no_session, record=older)
    with pytest.raises(OptionError, match="it had the parameters") as refused:
        run(load(written(tmp_path, text), {**given, "folder": "near"}), record=older)
    assert "MARKED" not in str(refused.value)


@pytest.mark.spec("rel-27")
def test_credentials_in_options_of_steps_are_in_no_record_report_or_representation(
    tmp_path: Path,
) -> None:
    text = """
runs = "https://user:MARKED-0@localhost:9/runs"
[parameters]
login = "none"
bases = "none"
api = "none"
day = "1"
[datasets]
near = "near.lance"
[steps.query]
kind = "sql"
query = "SELECT 1 AS a"
target = "near"
[steps.query.write_options]
base_store_params = "${bases}"
max_rows_per_file = 7
[steps.out]
kind = "export"
source = "near"
path = "out/${day}"
format = "jdbc"
[steps.out.options]
user = "me"
password = "x${login}"
[steps.ask]
kind = "python"
function = "here:ask"
arguments = { day = "${day}", api_token = "${api}" }
"""
    given = {"login": "MARKED-1", "bases": "MARKED-2", "api": "MARKED-4"}
    pipeline = load(written(tmp_path, text), given)
    assert pipeline.shown_parameters == {"day": "1"}
    local = replace(pipeline, runs=str(tmp_path / "runs"))
    record = Runs.of(local).start(local, "one")
    spark: Any = None
    context = StepContext(
        spark=spark, name="x", job_id="x", datasets={}, scratch="https://h/x?sig=MARKED-3"
    )
    shown = [repr(pipeline), repr(context), render_report(local, record)]
    shown += [repr(step) for step in pipeline.steps.values()]
    shown += [path.read_text() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert "MARKED" not in "".join(shown)


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    "settings",
    [
        "[storage]\ngoogle_service_account_key = {private_key = 'MARKED'}",
        "[storage]\naws_secret_access_key = ['MARKED', ['MARKED']]",
        "[storage]\naws_secret_access_key = 123456789",
        "[[storage]]\naws_secret_access_key = 'MARKED'",
        "[spark]\nremote = ['sc://host/;token=MARKED']",
        "[spark]\nconf = 'spark.password=MARKED'",
        "[parameters]\nkey = ['MARKED']\n[storage]\naws_secret_access_key = '${key}'",
        "[parameters]\nkey = 1\n[storage]\naws_secret_access_key = '${key}'",
    ],
)
def test_a_setting_of_the_wrong_kind_is_not_shown_where_it_may_be_secret(
    settings: str, tmp_path: Path
) -> None:
    text = f"{settings}\n[datasets]\nx = 'x'\n[steps.one]\nkind = 'vacuum'\ntarget = 'x'\n"
    given = {"key": "MARKED"} if "key = 1\n" in settings else {}
    with pytest.raises(OptionError, match=r"expected .*, found a ") as refused:
        load(written(tmp_path, text), given)
    assert "MARKED" not in str(refused.value)
    assert "123456789" not in str(refused.value)


@pytest.mark.spec("rel-27")
def test_passwords_and_keys_of_urls_are_in_no_plan_record_or_report(tmp_path: Path) -> None:
    text = """
name = "urls"
[parameters]
word = "MARKED-1"
sig = "MARKED-2"
day = "1"
the_port = 9
[datasets]
far = "https://user:MARKED-3@localhost:9/far.lance"
near = "near.lance"
by_port = "https://localhost:${the_port}/near.lance"
[steps.load]
kind = "ingest"
source = ["https://user:${word}@localhost:9/${day}/a.csv", "https://localhost:9/b.csv?sig=${sig}"]
target = "near"
[steps.query]
kind = "sql"
query = "SELECT * FROM lance.`https://user:MARKED-4@localhost:9/c.lance`"
target = "near"
mode = "append"
[steps.out]
kind = "export"
source = "near"
path = "https://user:MARKED-5@localhost:9/out"
"""
    pipeline = load(written(tmp_path, text))
    assert pipeline.shown_parameters == {"day": "1", "the_port": 9}
    runs = Runs.of(pipeline)
    record = runs.start(pipeline, "one")

    def no_session() -> Any:
        raise ConnectionError("no answer of https://user:MARKED-6@localhost:9")

    with pytest.raises(ConnectionError):
        run(pipeline, no_session, record=record)

    shown = [repr(pipeline), render_report(pipeline, record), repr([*pipeline.steps.values()])]
    shown += [step.shown for step in pipeline.steps.values()]
    shown += [path.read_text() for path in (tmp_path / "shop.runs").rglob("*") if path.is_file()]
    assert "localhost:9" in "".join(shown)
    assert "MARKED" not in "".join(shown)


@pytest.mark.spec("rel-27")
def test_a_parameter_that_is_a_url_with_a_password_is_in_no_record_or_report(
    tmp_path: Path,
) -> None:
    text = """
[parameters]
source = "none"
end = "none"
place = "none"
unused = "none"
root = "https://h"
day = "1"
[datasets]
near = "near.lance"
far = "${root}/${end}"
[steps.load]
kind = "ingest"
source = "${source}"
target = "near"
[steps.out]
kind = "export"
source = "near"
path = "${place}/$${day}/${day}"
"""
    given = {
        "source": "https://user:MARKED-1@h/x.csv",
        "end": "t.lance?sig=MARKED-2",
        "place": "https://user:MARKED-3@h",
        "unused": "https://h/x?sig=MARKED-4",
    }
    pipeline = load(written(tmp_path, text), given)
    assert pipeline.shown_parameters == {"root": "https://h", "day": "1"}
    assert pipeline.datasets["far"] == "https://h/t.lance?sig=MARKED-2"
    runs = Runs.of(pipeline)
    record = runs.start(pipeline, "one")
    shown = [render_report(pipeline, record), *(step.shown for step in pipeline.steps.values())]
    shown += [path.read_text() for path in (tmp_path / "shop.runs").rglob("*") if path.is_file()]
    assert "MARKED" not in "".join(shown)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_step_is_in_the_guide(kind: str) -> None:
    assert KINDS[kind].kind == kind
    guide = Path(__file__).resolve().parents[2] / "docs" / "guide" / "pipelines.md"
    assert f"| `{kind}` |" in guide.read_text("utf-8")


def test_a_record_that_is_none_is_refused(tmp_path: Path) -> None:
    pipeline = load(written(tmp_path))
    runs = Runs.of(pipeline)
    with pytest.raises(NotFoundError, match="this pipeline has no runs"):
        runs.latest()
    record = runs.start(pipeline, "first")
    with pytest.raises(OptionError, match="this run exists"):
        runs.start(pipeline, "first")
    assert RunRecord.of_json(record.to_json(), "here") == record
    (tmp_path / "shop.runs" / "first" / "run.json").write_text('{"steps": []}')
    with pytest.raises(OptionError, match=r"run\.json: not a record of a run"):
        runs.latest()


@pytest.mark.parametrize("other", ["second", "../../elsewhere"])
def test_a_record_of_another_run_is_refused(tmp_path: Path, other: str) -> None:
    pipeline = load(written(tmp_path))
    runs = Runs.of(pipeline)
    record = runs.start(pipeline, "first")
    record.id = other
    (tmp_path / "shop.runs" / "first" / "run.json").write_bytes(record.to_json())
    with pytest.raises(OptionError, match=r"run\.json: the record of another run"):
        runs.find("first")
    with pytest.raises(OptionError, match=r"run\.json: the record of another run"):
        runs.latest()


@pytest.mark.parametrize("linked", ["first", "first/add-1234", "second"])
def test_a_run_writes_and_empties_nothing_behind_links_out_of_its_folder(
    tmp_path: Path, linked: str
) -> None:
    pipeline = load(written(tmp_path))
    runs = Runs.of(pipeline)
    record = runs.start(pipeline, "first")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "shop.runs" / linked
    if linked == "first":
        link.rename(elsewhere / "record")
        elsewhere = elsewhere / "record"
    link.symlink_to(elsewhere, target_is_directory=True)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    leads_out = pytest.raises(OptionError, match=r"is a link to .*elsewhere.*remove the link")

    if linked == "second":
        with leads_out:
            runs.start(pipeline, "second")
    elif linked == "first":
        with leads_out:
            runs.keep(record)
        with leads_out:
            runs.write(record, "report.html", b"")
    if linked != "second":
        with leads_out:
            runs.scratch(record, "add-1234")
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before


def test_a_record_may_name_files_that_are_no_text_and_counts_of_any_kind(tmp_path: Path) -> None:
    pipeline = load(written(tmp_path))
    runs = Runs.of(pipeline)
    record = runs.start(pipeline, "first")
    counts: dict[str, Any] = {"share": 0.5, "rows": 1000, "best": "a"}
    record.steps["merge"] = StepRecord(kind="merge", error="no b\udcff.csv", counts=counts)
    runs.keep(record)
    assert runs.find("first") == record
    status = CliRunner().invoke(cli, ["status", f"{pipeline.file}"])
    assert "share 0.5, rows 1,000, best a" in " ".join(status.output.split())


@pytest.mark.spec("rel-36")
def test_what_a_failed_run_says_is_written_out_and_its_advice_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "a \x1b[2J\nGo on"
    folder.mkdir()
    file = f"{written(folder)}"
    pipeline = load(file)
    Runs.of(pipeline).start(pipeline, "first")
    for words in (["--set", "nothing=1"], ["--run-id", "first", "--set", "folder=other"]):
        failed = CliRunner().invoke(main, ["pipeline", "run", file, *words])
        assert failed.exit_code == WRONG_FILE
        assert [mark for mark in failed.output if not mark.isprintable() and mark != "\n"] == []
        assert "a \\x1b[2J\\nGo on/shop.toml" in failed.output
    advice = failed.output.splitlines()[-1]
    assert advice.startswith("Continue with: glaive pipeline run '")
    assert advice.endswith("/shop.toml' --resume")


def test_commands_tell_by_their_exit_code(tmp_path: Path) -> None:
    file = str(written(tmp_path))
    planned = CliRunner().invoke(cli, ["plan", file, "--json"])
    assert planned.exit_code == 0
    assert '"name": "merge"' in planned.output
    wrong = CliRunner().invoke(cli, ["run", file, "--set", "nothing=1"])
    assert (wrong.exit_code, "does not exist" in wrong.output) == (WRONG_FILE, True)
    load_pipeline = load(file)
    Runs.of(load_pipeline).start(load_pipeline, "first")
    status = CliRunner().invoke(cli, ["status", file])
    assert (status.exit_code, "run first: waiting" in status.output) == (UNFINISHED, True)
    page = tmp_path / "page.html"
    report = CliRunner().invoke(cli, ["report", file, "--html", str(page)])
    assert (report.exit_code, "shop, run first" in page.read_text()) == (0, True)


def test_a_spec_of_sparks_own_pipelines_names_its_command(tmp_path: Path) -> None:
    path = tmp_path / "spark-pipeline.yml"
    path.write_text("name: shipments\nlibraries:\n  - glob:\n      include: transformations/**\n")
    with pytest.raises(OptionError, match=r"not TOML: .* spark-pipelines run --spec .*yml"):
        load(path)


def test_a_branch_that_a_listing_lacks_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, spark = pa.table({"a": [1, 2]}), None
    glaive.write_dataset(rows, tmp_path / "t")
    context = StepContext(
        spark=spark,  # type: ignore[arg-type]  # nothing of a session is needed
        name="x",
        job_id="x",
        datasets={"t": str(tmp_path / "t")},
    )
    context.ensure_branch("t", "dev")
    context.dataset("t", "dev").insert(rows)
    monkeypatch.setattr(Branches, "list", lambda _: {})
    context.ensure_branch("t", "dev")
    assert context.dataset("t", "dev").count_rows() == 4
