"""SQL with DuckDB over columns that lie in far memory.

    python duckdb_query.py [URL]

DuckDB reads the columns of a pandas frame where they are, with threads of its own, and copies none. What it builds
itself, such as the tables of its joins and groups, is local, and has a limit of its own (`memory_limit`).
"""

import sys

import duckdb
import numpy
import pandas
import yonder

ROWS, ZONES = 2_000_000, 100


def main() -> int:
    url = sys.argv[1] if len(sys.argv) > 1 else "emu://"
    with yonder.open(url, local="8MiB", memory="256MiB") as memory:
        rows = numpy.arange(ROWS)
        columns = {
            "zone": memory.array(rows * 7919 % ZONES),
            "minutes": memory.array(rows % 61 / 2.0),
        }
        rides = pandas.DataFrame(columns, copy=False)
        assert yonder.is_far(rides["minutes"].to_numpy())

        with duckdb.connect(config={"memory_limit": "64MB"}) as database:
            database.register("rides", rides)
            query = "SELECT zone, count(*) AS rides, sum(minutes) AS total FROM rides WHERE minutes > 5 GROUP BY zone ORDER BY zone"
            found = database.execute(query).fetchnumpy()
            longest = database.execute("SELECT zone, minutes FROM rides ORDER BY minutes DESC, zone LIMIT 3").fetchall()

        is_long = rows % 61 / 2.0 > 5
        sums = numpy.bincount(rows[is_long] * 7919 % ZONES, weights=rows[is_long] % 61 / 2.0)
        right = numpy.allclose(found["total"], sums) and [minutes for _, minutes in longest] == [30.0] * 3
        stats = memory.stats()
        print(f"{stats.used_bytes_max >> 20} MiB of columns, {stats.local_bytes_max >> 20} MiB local at most")
        print(f"{len(sums)} groups; right: {right}")
        return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
