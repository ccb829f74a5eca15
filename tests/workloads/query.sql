-- A database made, indexed, joined, aggregated and sorted in memory; table "size" says how many rows.
CREATE TABLE item(id INTEGER PRIMARY KEY, kind INTEGER, name TEXT, price REAL);
CREATE TABLE sale(id INTEGER PRIMARY KEY, item INTEGER, day INTEGER, count INTEGER);
WITH RECURSIVE counter(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counter, size WHERE i < size.n)
  INSERT INTO item SELECT i, i % 37, printf('item-%08x', i * 2654435761 % 4294967296), (i * 7919 % 10007) / 100.0 FROM counter;
WITH RECURSIVE counter(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counter, size WHERE i < 3 * size.n)
  INSERT INTO sale SELECT i, i * 48271 % (SELECT n FROM size) + 1, i % 365, i * 31 % 11 FROM counter;
CREATE INDEX sale_by_item ON sale(item);
CREATE INDEX item_by_name ON item(name);
SELECT kind, count(*), printf('%.2f', sum(price * count)) FROM item JOIN sale ON sale.item = item.id
  GROUP BY kind ORDER BY 3 DESC LIMIT 5;
SELECT day, sum(count) FROM sale JOIN item ON sale.item = item.id WHERE name LIKE '%f%' GROUP BY day ORDER BY 2 DESC, 1 LIMIT 5;
SELECT count(DISTINCT substr(name, 6, 4)), max(name) FROM item;
SELECT printf('%.4f', avg(price)) FROM (SELECT price, row_number() OVER (PARTITION BY kind ORDER BY price) AS rank FROM item) WHERE rank < 50;
