-- Makes, indexes, changes and queries a table of :rows rows in memory.
CREATE TABLE item(id INTEGER PRIMARY KEY, key INTEGER, part INTEGER, body TEXT);
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :rows)
INSERT INTO item
SELECT i, i * 2654435761 % 4294967291, i * 40503 % 997,
       printf('%016x%064d%016x', i * 2654435761 % 4294967291, i, i * i)
FROM n;
CREATE INDEX item_by_key ON item(key);
SELECT count(*), sum(length(body)) FROM item;
SELECT part, count(*), sum(key), max(body) FROM item GROUP BY part ORDER BY part;
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :rows / 4)
SELECT count(*), sum(id), max(body) FROM n JOIN item ON key = i * 7919 % :rows * 2654435761 % 4294967291;
UPDATE item SET body = upper(body) WHERE id % 7 = 3;
SELECT count(*), min(body), max(body) FROM item WHERE body GLOB '*[A-F]*';
SELECT id, key, body FROM item WHERE id % 1009 = 0 ORDER BY key;
