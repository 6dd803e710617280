-- A table, an index, joins, and sorts and hashes that are larger than the local memory.
SET work_mem = '192MB';
SET maintenance_work_mem = '64MB';
SET max_parallel_workers_per_gather = 0;
SET jit = off;
CREATE TABLE items AS
  SELECT n AS id, (n::bigint * 7919) % 400009 AS key, md5(n::text) AS text FROM generate_series(1, 400000) AS n;
CREATE INDEX ON items (key);
ANALYZE items;
SELECT count(*), sum(key), md5(string_agg(text, '' ORDER BY key)) FROM items;
SELECT md5(string_agg(line, ',')) FROM (SELECT key % 50021 || ':' || count(*) AS line FROM items GROUP BY key % 50021
  ORDER BY 1) AS lines;
SELECT count(*), sum(a.id - b.key) FROM items AS a JOIN items AS b ON a.key = b.id;
BEGIN;
DELETE FROM items WHERE key % 3 = 0;
SELECT count(*) FROM items;
ROLLBACK;
UPDATE items SET text = reverse(text) WHERE key % 5 = 0;
SELECT md5(string_agg(text, '' ORDER BY id)) FROM items;
