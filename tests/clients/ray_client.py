"""Ray and lance-ray read and write datasets of glaive."""

from __future__ import annotations

import sys

import glaive.compat

glaive.compat.install()

import lance_ray  # noqa: E402  # after the alias
import pyarrow as pa  # noqa: E402  # after the alias
import pyarrow.compute as pc  # noqa: E402  # after the alias
import ray  # noqa: E402  # after the alias


def install() -> None:
    """In each worker process."""
    glaive.compat.install()


def main(folder: str) -> None:
    """Read, filter, write, append, compute a column, compact."""
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        configure_logging=False,
        runtime_env={"worker_process_setup_hook": install},
    )
    place = f"{folder}/made.lance"
    rows = pa.table({"id": range(100), "name": [f"n{at}" for at in range(100)]})
    glaive.write_dataset(rows, place, max_rows_per_file=30)
    read = ray.data.read_lance(place, columns=["id"], filter="id < 40")
    assert sorted(row["id"] for row in read.take_all()) == list(range(40))

    whole = lance_ray.read_lance(place)
    assert whole.count() == 100
    lance_ray.write_lance(whole, f"{folder}/copied.lance", mode="create")
    lance_ray.write_lance(whole, f"{folder}/copied.lance", mode="append")
    copied = glaive.dataset(f"{folder}/copied.lance")
    assert copied.count_rows() == 200
    assert copied.schema.field("name").type == pa.string()

    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"double": pc.multiply(batch["id"], 2)})

    lance_ray.add_columns(place, transform=double, read_columns=["id"], concurrency=1)
    grown = glaive.dataset(place).to_table()
    assert grown["double"].to_pylist() == [2 * at for at in range(100)]

    lance_ray.compact_files(place, num_workers=1)
    assert len(glaive.dataset(place).get_fragments()) == 1
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
