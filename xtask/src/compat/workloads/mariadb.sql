-- A table whose pages fill the buffer pool, an index, a join, a sort, and a transaction that is taken back.
CREATE DATABASE compat;
USE compat;
CREATE TABLE items (id INT PRIMARY KEY, k INT, text CHAR(100) NOT NULL, KEY (k)) ENGINE=InnoDB;
INSERT INTO items SELECT seq, (seq * 7919) % 400009, REPEAT(MD5(seq), 3) FROM seq_1_to_300000;
SELECT COUNT(*), SUM(k), SUM(CRC32(text)) FROM items;
SELECT COUNT(*), SUM(CAST(a.id AS SIGNED) - b.k) FROM items AS a JOIN items AS b ON a.k = b.id;
SELECT SUM(position * (id % 1009)) FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY text, id) AS position FROM items) AS t;
START TRANSACTION;
DELETE FROM items WHERE k % 3 = 0;
SELECT COUNT(*) FROM items;
ROLLBACK;
UPDATE items SET text = REVERSE(text) WHERE k % 5 = 0;
SELECT COUNT(*), SUM(CRC32(text)) FROM items;
