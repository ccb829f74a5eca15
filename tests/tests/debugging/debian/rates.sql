CREATE TABLE rates(currency TEXT PRIMARY KEY, sign TEXT, per_unit REAL);
INSERT INTO rates VALUES ('EUR', 'E', 1), ('USD', '$', 0.92), ('GBP', 'L', 1.17), ('JPY', 'Y', 0.0061);
CREATE TABLE payments(id INTEGER PRIMARY KEY, amount REAL, currency TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)
  INSERT INTO payments SELECT i, i * 10,
    CASE WHEN i = 41 THEN 'CHF' WHEN i % 3 = 0 THEN 'USD' WHEN i % 3 = 1 THEN 'GBP' ELSE 'JPY' END FROM n;
SELECT set_base('EUR');
SELECT show(sum(convert(amount, currency))) FROM payments;
