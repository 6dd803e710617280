# Tables in memory, a join, a window, and sorts and hashes that are larger than the local memory.
import duckdb

db = duckdb.connect(":memory:", config={"threads": 2, "memory_limit": "2GB", "temp_directory": ""})
db.execute("""create table items as
    select n as id, (n * 7919) % 2000003 as key, md5(n::varchar) as text from range(1, 2000001) as numbers(n)""")
for query in [
    "select count(*), sum(key), sum(hash(text) % 1000003) from items",
    "select count(*), sum(a.id - b.key) from items as a join items as b on a.key = b.id",
    "select sum(position * (id % 1009)) from (select id, row_number() over (order by text) as position from items)",
    "select key % 10 as k, count(*), min(text), max(text) from items group by k order by k",
]:
    print(db.execute(query).fetchall())
