"""Datasets behave the same wherever they lie, also where requests are slow or fail."""

from __future__ import annotations

import http.server
import json
import pickle
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.distant import DISTANT
from tests.strangers import listening

import glaive
from glaive.cli.main import cli
from glaive.errors import (
    AccessError,
    CommitError,
    CorruptFileError,
    DatasetExistsError,
    GlaiveError,
    StoreError,
)
from glaive.format.paths import DETACHED, manifest_path, parse_manifest_name
from glaive.io.access import open_store

from .server import Failing, Kind, Server

ROWS = pa.table({"id": pa.array(range(5000)), "text": [f"text {i % 97}" for i in range(5000)]})
Place = tuple[str, dict[str, str]]
PLACES = ["directory", "file", "memory", "s3", "fsspec+memory", "distant"]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A URI and the options that go with it."""
    match request.param:
        case "directory":
            return str(tmp_path / "t"), {}
        case "file":
            return f"file://{tmp_path}/t", {}
        case "s3":
            server: Server = request.getfixturevalue("server")
            return f"s3://{server.bucket()}/deep/t", server.options
        case "distant":
            return f"{DISTANT.format(tmp_path)}/t", {}
        case scheme:
            return f"{scheme}://{uuid4().hex}/t", {}


def of_manifests(method: str, path: str) -> bool:
    """Whether a request puts a manifest."""
    return method == "PUT" and "_versions/1" in path


class TestEverywhere:
    def test_a_dataset_is_written_changed_and_read(self, place: Place) -> None:
        uri, options = place
        write = partial(glaive.write_dataset, storage_options=options)
        write(ROWS, uri, max_rows_per_file=2000)
        write(ROWS.slice(0, 10), uri, mode="append")
        dataset = glaive.dataset(uri, storage_options=options)
        assert dataset.version == 2
        assert dataset.to_table() == pa.concat_tables([ROWS, ROWS.slice(0, 10)])
        assert dataset.take([4999, 3, 5003], columns=["id"])["id"].to_pylist() == [4999, 3, 3]
        assert sum(b.num_rows for b in dataset.to_batches(columns=["text"])) == 5010
        assert [version["version"] for version in dataset.versions()] == [1, 2]
        assert glaive.dataset(uri, 1, storage_options=options).count_rows() == 5000

    def test_what_is_there_is_not_created_again(self, place: Place) -> None:
        uri, options = place
        glaive.write_dataset(ROWS, uri, storage_options=options)
        with pytest.raises(DatasetExistsError):
            glaive.write_dataset(ROWS, uri, storage_options=options)

    def test_reads_and_writes_are_counted(self, place: Place) -> None:
        uri, options = place
        written = glaive.write_dataset(ROWS, uri, storage_options=options)
        stats = written.io_stats_snapshot()
        assert stats.write_iops >= 3  # data, transaction, manifest
        assert stats.written_bytes == stats.write_bytes > 10_000
        dataset = glaive.dataset(uri, storage_options=options)
        dataset.io_stats_incremental()
        dataset.to_table()
        stats = dataset.io_stats_incremental()
        assert stats.read_iops >= 1
        assert stats.read_bytes > 10_000
        assert (stats.write_iops, stats.written_bytes) == (0, 0)
        assert dataset.io_stats_snapshot().read_iops == 0


class TestS3:
    @pytest.fixture
    def uri(self, server: Server) -> str:
        uri = f"s3://{server.bucket()}/t"
        glaive.write_dataset(ROWS, uri, storage_options=server.options)
        server.reset()
        return uri

    def test_options_are_taken_in_any_spelling(self, server: Server, uri: str) -> None:
        options = {
            "AWS_ACCESS_KEY_ID": "test",
            "secret_access_key": "test",
            "Region": "us-east-1",
            "endpoint_url": server.url,
            "ALLOW_HTTP": "True",
            "google_service_account": "/none",
            "no_such_option": "1",
        }
        assert glaive.dataset(uri, storage_options=options).count_rows() == 5000

    def test_the_full_name_of_an_option_wins(self, server: Server, uri: str) -> None:
        options = server.options | {"endpoint": "http://127.0.0.1:1", "AWS_ENDPOINT": "http://x"}
        assert glaive.dataset(uri, storage_options=options).count_rows() == 5000

    def test_a_value_that_cannot_be_is_named(self) -> None:
        with pytest.raises(GlaiveError, match=r"s3://b/t.*aws_conditional_put|s3://b/t.*Condit"):
            glaive.dataset("s3://b/t", storage_options={"aws_conditional_put": "sometimes"})

    def test_commands_find_it_by_options_given(self, server: Server, uri: str) -> None:
        options = [f"--storage-option={key}={value}" for key, value in server.options.items()]
        folder, _, name = uri.rpartition("/")
        listed = CliRunner().invoke(cli, ["ls", folder, "--json", *options])
        assert (json.loads(listed.stdout)["dataset"], listed.exit_code) == (name, 0)
        assert json.loads(listed.stdout)["rows"] == 5000
        checked = CliRunner().invoke(cli, ["doctor", uri, *options])
        assert f"✓ {uri}: version 1, 5,000 rows" in checked.stdout

    @pytest.mark.spec("name-3", "latest-1")
    def test_the_newest_version_is_not_passed_over_where_another_library_stopped_to_rename(
        self, server: Server
    ) -> None:
        uri, options = f"s3://{server.bucket()}/t", server.options
        for _ in range(4):
            glaive.write_dataset(
                ROWS, uri, mode="append", storage_options=options, enable_v2_manifest_paths=False
            )
        store = open_store(uri, options)
        for version in (1, 2):
            old, new = manifest_path(version, "V1"), manifest_path(version, "V2")
            store.put(new, [store.get(old)])
            store.delete([old])
        for mode in ("append", "overwrite"):
            with pytest.raises(CorruptFileError, match="one naming scheme"):
                glaive.write_dataset(ROWS, uri, mode=mode, storage_options=options)
        dataset = glaive.dataset(uri, version=4, storage_options=options)
        dataset.migrate_manifest_paths_v2()
        assert glaive.dataset(uri, storage_options=options).version == 4

    def test_opening_takes_two_requests(self, server: Server, uri: str) -> None:
        glaive.dataset(uri, storage_options=server.options)
        assert [call.method for call in server.calls] == ["GET", "GET"]

    @pytest.mark.sampled(every=7)
    @pytest.mark.parametrize("kind", ["error", "throttle", "reset", "cut"])
    @pytest.mark.parametrize("after", range(4))
    def test_a_read_that_fails_once_is_repeated(
        self, server: Server, uri: str, kind: Kind, after: int
    ) -> None:
        server.failing.append(Failing(kind, after=after))
        dataset = glaive.dataset(uri, storage_options=server.options)
        assert dataset.to_table() == ROWS
        assert server.failing[0].times == (0 if len(server.calls) > after else 1)

    @pytest.mark.sampled(every=10)
    @pytest.mark.parametrize("kind", ["error", "throttle", "reset", "lie"])
    @pytest.mark.parametrize("after", range(4))
    def test_a_write_that_fails_once_happens_once(
        self, server: Server, uri: str, kind: Kind, after: int
    ) -> None:
        server.failing.append(Failing(kind, lambda method, _: method in ("PUT", "POST"), after))
        with suppress(StoreError):
            glaive.write_dataset(ROWS, uri, mode="append", storage_options=server.options)
        rows = glaive.dataset(uri, storage_options=server.options).count_rows()
        versions = glaive.dataset(uri, storage_options=server.options).version
        assert (rows, versions) in ((5000, 1), (10_000, 2))

    @pytest.mark.spec("rel-6", "rel-21")
    def test_a_lost_answer_to_the_commit_is_no_failure(self, server: Server, uri: str) -> None:
        server.failing.append(Failing("lie", of_manifests))
        made = glaive.write_dataset(ROWS, uri, mode="append", storage_options=server.options)
        assert made.version == 2
        assert glaive.dataset(uri, storage_options=server.options).version == 2

    @pytest.mark.spec("rel-8")
    @pytest.mark.parametrize("kind", ["late", "gateway"])
    def test_a_commit_that_may_be_under_way_is_not_said_to_have_failed(
        self, server: Server, uri: str, kind: Kind
    ) -> None:
        server.failing.append(Failing(kind, of_manifests))
        options = server.options | {"client_max_retries": "0"}
        with pytest.raises(CommitError, match=r"version 2 .* may or may not have been committed"):
            glaive.write_dataset(ROWS, uri, mode="append", storage_options=options)
        assert glaive.dataset(uri, storage_options=server.options).version == 1
        server.arrive()
        assert glaive.dataset(uri, storage_options=server.options).count_rows() == 10_000

    @pytest.mark.spec("rel-8")
    def test_a_commit_that_the_store_refused_is_no_version(self, server: Server, uri: str) -> None:
        server.failing.append(Failing("error", of_manifests))
        options = server.options | {"client_max_retries": "0"}
        with pytest.raises(StoreError, match="500"):
            glaive.write_dataset(ROWS, uri, mode="append", storage_options=options)
        assert glaive.dataset(uri, storage_options=server.options).version == 1

    def test_a_commit_that_meets_a_request_under_way_is_tried_again(
        self, server: Server, uri: str
    ) -> None:
        server.failing.append(Failing("conflict", of_manifests))
        made = glaive.write_dataset(ROWS, uri, mode="append", storage_options=server.options)
        assert server.failing[0].times == 0
        assert made.version == 2
        assert made.count_rows() == 10_000

    def test_a_store_that_keeps_failing_is_an_error_with_the_path(
        self, server: Server, uri: str
    ) -> None:
        server.failing.append(Failing("error", times=100))
        options = server.options | {"client_max_retries": "1"}
        with pytest.raises(StoreError, match=r"s3://b.*/t"):
            glaive.dataset(uri, storage_options=options)
        assert len(server.calls) == 2

    def test_missing_credentials_and_buckets_are_errors(self, server: Server) -> None:
        options = server.options | {"client_max_retries": "0"}
        with pytest.raises(GlaiveError, match="nosuchbucket"):
            glaive.write_dataset(ROWS, "s3://nosuchbucket/t", storage_options=options)

    def test_writers_at_once_lose_nothing(self, server: Server, uri: str) -> None:
        def append(number: int) -> int:
            piece = pa.table({"id": [number], "text": ["x"]})
            done = glaive.write_dataset(piece, uri, mode="append", storage_options=server.options)
            return done.version

        with ThreadPoolExecutor(4) as pool:
            versions = list(pool.map(append, range(12)))
        assert sorted(versions) == list(range(2, 14))
        rows = glaive.dataset(uri, storage_options=server.options).to_table()["id"].to_pylist()
        assert sorted(rows[5000:]) == list(range(12))

    def test_a_dataset_can_be_sent_to_another_process(self, server: Server, uri: str) -> None:
        dataset = glaive.dataset(uri, storage_options=server.options)
        assert pickle.loads(pickle.dumps(dataset)).count_rows() == 5000


@pytest.fixture(scope="module")
def many(running_server: Server) -> str:
    """48 fragments of four columns."""
    rng = np.random.default_rng(0)
    rows = pa.table({f"c{i}": rng.integers(0, 2**62, 48 * 10_000) for i in range(4)})
    uri = f"s3://{running_server.bucket()}/t"
    options = running_server.options
    glaive.write_dataset(rows, uri, max_rows_per_file=10_000, storage_options=options)
    return uri


class TestSlowStores:
    LATENCY = 0.03

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize("how", ["table", "batches"])
    def test_a_projected_scan_keeps_16_requests_in_flight(
        self, server: Server, many: str, how: str, record_property: Callable[..., None]
    ) -> None:
        dataset = glaive.dataset(many, storage_options=server.options)
        with server.slow(self.LATENCY):
            if how == "table":
                rows = dataset.to_table(columns=["c1", "c3"]).num_rows
            else:
                rows = sum(batch.num_rows for batch in dataset.to_batches(columns=["c1", "c3"]))
        assert rows == 480_000
        record_property("mean_in_flight", server.mean_in_flight())
        assert server.most_in_flight() >= 16
        assert server.mean_in_flight() >= 6
        assert server.most_in_flight() <= 32 + 1  # GLAIVE_IO_CONCURRENCY; one is being closed

    def test_a_take_over_ten_fragments_needs_six_round_trips(self, server: Server) -> None:
        rng = np.random.default_rng(1)
        rows = pa.table(
            {
                "id": rng.integers(0, 2**62, 200_000),
                "text": [f"a text {i}" for i in range(200_000)],
                "other": rng.random(200_000),
            }
        )
        wanted = np.sort(rng.choice(200_000, 1000, replace=False))
        trips: list[int] = []
        while not trips or (trips[-1] > 6 and len(trips) < 5):  # other work may delay answers
            uri = f"s3://{server.bucket()}/t"  # a bucket of its own: nothing of it is known
            glaive.write_dataset(
                rows, uri, max_rows_per_file=20_000, storage_options=server.options
            )
            with server.slow(0.12 * 2 ** len(trips)):  # long beside what the server itself takes
                dataset = glaive.dataset(uri, storage_options=server.options)
                assert len(dataset.get_fragments()) == 10
                taken = dataset.take(wanted.tolist(), columns=["id", "text"])
            assert taken == rows.select(["id", "text"]).take(pa.array(wanted))
            trips.append(server.round_trips())
        assert trips[-1] <= 6, server.calls


class TestWebServers:
    @pytest.fixture
    def url(self, tmp_path: Path) -> Iterator[str]:
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                """A whole file or one range of it, which the base class does not know."""
                asked = self.headers.get("Range")
                path = Path(self.translate_path(self.path))
                if asked is None or not path.is_file():
                    super().do_GET()
                    return
                data = path.read_bytes()
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start = int(first) if first else max(0, len(data) - int(last))
                stop = min(int(last) + 1, len(data)) if first and last else len(data)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
                self.send_header("Content-Length", str(stop - start))
                self.end_headers()
                self.wfile.write(data[start:stop])

        handler = partial(Quiet, directory=str(tmp_path))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
            thread.join()

    def test_a_dataset_is_read_though_nothing_is_listed(self, url: str, tmp_path: Path) -> None:
        glaive.write_dataset(ROWS, tmp_path / "t")
        glaive.write_dataset(ROWS, tmp_path / "t", mode="append")
        dataset = glaive.dataset(f"{url}/t")
        assert dataset.version == 2
        assert dataset.to_table(columns=["id"])["id"].to_pylist() == [*range(5000)] * 2
        assert glaive.dataset(f"{url}/t", 1).count_rows() == 5000

    def test_versions_newer_than_the_hint_are_found(self, url: str, tmp_path: Path) -> None:
        hint = tmp_path / "t/_versions/latest_version_hint.json"
        for newest in range(1, 9):
            glaive.write_dataset(ROWS.slice(0, 1), tmp_path / "t", mode="append")
            for hinted in range(1, newest + 1):
                hint.write_text(f'{{"version":{hinted}}}')
                assert glaive.dataset(f"{url}/t").version == newest

    @pytest.mark.spec("rel-26")
    def test_a_copied_branch_makes_no_dataset_of_its_server(self, url: str, tmp_path: Path) -> None:
        """Values of blobs of a branch may lie in its dataset: for ``/tree/dev``, on all of it."""
        (tmp_path / "key").write_bytes(b"secret")
        schema = pa.schema([glaive.blob_field("b")])
        values = [glaive.blob_array([f"{url}/t/own", f"{url}/key"])]
        dataset = glaive.write_dataset(
            pa.Table.from_arrays(values, schema=schema),
            tmp_path / "t",
            allow_external_blob_outside_bases=True,
        )
        bases = [glaive.DatasetBasePath(url, id=7), glaive.DatasetBasePath(f"{url}/t", id=8)]
        dataset.add_bases(bases)
        number = glaive.dataset(tmp_path / "t").create_branch("dev").version
        (tmp_path / "t" / "own").write_bytes(b"own")
        (made,) = (tmp_path / "t" / "tree" / "dev" / "_versions").glob("*.manifest")
        root = str(tmp_path / "t").encode()
        at_url = f"{url}/t".encode().ljust(len(root), b"/")
        made.write_bytes(made.read_bytes().replace(root, at_url))
        shutil.copytree(tmp_path / "t" / "tree", tmp_path / "tree")
        branch = glaive.dataset(f"{url}/t/tree/dev", version=number)
        assert branch.read_blobs("b", indices=[0]) == [(0, b"own")]
        for where in ("t/tree/dev", "tree/dev"):
            opened = glaive.dataset(f"{url}/{where}", version=number)
            with pytest.raises(AccessError, match=r"below base path 7 of .*, which is outside"):
                opened.read_blobs("b", indices=[1])

    def test_a_server_with_an_answer_for_every_name_is_asked_a_few_times(self) -> None:
        with listening() as stranger:
            stranger.content = b'{"version":1}'
            with pytest.raises(glaive.GlaiveError, match="is not a Lance manifest"):
                glaive.dataset(f"{stranger.url}/t")
            assert len(stranger.asked) < 140
            names = [
                parse_manifest_name(line.split()[1].rpartition("/")[2]) for line in stranger.asked
            ]
        # The search ends below the numbers of detached versions, which have no place in history.
        assert max(name.version for name in names if name is not None) == DETACHED - 1


@pytest.mark.interop
def test_pylance_and_we_take_turns_in_a_bucket(server: Server) -> None:
    import lance

    uri = f"s3://{server.bucket()}/deep/t"
    for number in range(6):
        library: Any = (lance, glaive)[number % 2]
        mode = "append" if number else "create"
        library.write_dataset(ROWS, uri, mode=mode, storage_options=server.options)
    for library in (lance, glaive):
        dataset = library.dataset(uri, storage_options=server.options)
        assert (dataset.version, dataset.count_rows()) == (6, 30_000)
        assert dataset.to_table(columns=["id"])["id"].to_pylist() == [*range(5000)] * 6


@pytest.mark.interop
def test_statistics_are_those_of_pylance_where_requests_are_the_same(tmp_path: Path) -> None:
    import lance

    written = {
        library.__name__: library.write_dataset(ROWS, tmp_path / library.__name__)
        for library in (lance, glaive)
    }
    ours, theirs = written["glaive"].io_stats_snapshot(), written["lance"].io_stats_snapshot()
    assert ours.write_iops == theirs.write_iops
    assert (ours.read_iops, ours.read_bytes) == (theirs.read_iops, theirs.read_bytes) == (0, 0)
    names = {name for name in dir(theirs) if not name.startswith("_")}
    assert names <= set(dir(ours))


def test_a_drop_deletes_manifests_once_all_other_files_are_deleted(server: Server) -> None:
    place, options = f"s3://{server.bucket()}/t", server.options
    one_by_one = {**options, "aws_disable_bulk_delete": "true"}
    dataset = glaive.write_dataset(ROWS, place, storage_options=options)
    for _ in range(8):
        dataset.insert(ROWS.slice(0, 3))
    dataset.store.put(f"{manifest_path(10)}-{uuid4()}", [b"a manifest store may have it"])
    server.reset()
    glaive.LanceDataset.drop(place, storage_options=one_by_one)
    deleted = [call for call in server.calls if call.method == "DELETE"]
    manifests = [call for call in deleted if ".manifest" in call.path]
    others = [call for call in deleted if call not in manifests]
    assert len(manifests) == 10
    assert max(call.ended for call in others) <= min(call.began for call in manifests)
    assert not [*open_store(place, options).walk("")]


def test_objects_are_deleted_behind_one_that_is_missing(server: Server) -> None:
    place, options = f"s3://{server.bucket()}/t", server.options
    store = open_store(place, {**options, "aws_disable_bulk_delete": "true"})
    names = [f"{number:02}" for number in range(40)]
    for name in names[1:]:
        store.put(name, [b"x"])
    # Amazon answers as if it had been there, Google Cloud Storage that it is not.
    server.failing.append(Failing("unknown", lambda method, _: method == "DELETE"))
    store.delete(names)
    assert not [*store.walk("")]
