"""Ten queries of TPC-H over lineitem and orders, without conditions on other tables."""

from __future__ import annotations

__all__ = ["QUERIES"]

_REVENUE = "sum(l_extendedprice * (1 - l_discount))"

QUERIES = {
    "Q1": f"""
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), {_REVENUE},
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity),
       avg(l_extendedprice), avg(l_discount), count(*)
FROM lineitem WHERE l_shipdate <= DATE '1998-09-02'
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    "Q3": f"""
SELECT l_orderkey, {_REVENUE} AS revenue, o_orderdate, o_shippriority
FROM orders JOIN lineitem ON l_orderkey = o_orderkey
WHERE o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10""",
    "Q4": """
SELECT o_orderpriority, count(*) FROM orders
WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01'
  AND EXISTS (SELECT * FROM lineitem
              WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority""",
    "Q5": f"""
SELECT l_suppkey % 25 AS nation, {_REVENUE} AS revenue
FROM orders JOIN lineitem ON l_orderkey = o_orderkey
WHERE o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
GROUP BY l_suppkey % 25 ORDER BY revenue DESC""",
    "Q6": """
SELECT sum(l_extendedprice * l_discount) FROM lineitem
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
  AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "Q10": f"""
SELECT o_custkey, {_REVENUE} AS revenue
FROM orders JOIN lineitem ON l_orderkey = o_orderkey
WHERE o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01'
  AND l_returnflag = 'R'
GROUP BY o_custkey ORDER BY revenue DESC LIMIT 20""",
    "Q12": """
SELECT l_shipmode, sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END),
       sum(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END)
FROM orders JOIN lineitem ON l_orderkey = o_orderkey
WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
  AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01'
  AND l_receiptdate < DATE '1995-01-01'
GROUP BY l_shipmode ORDER BY l_shipmode""",
    "Q15": f"""
WITH revenue AS (
  SELECT l_suppkey AS supplier, {_REVENUE} AS total FROM lineitem
  WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01' GROUP BY l_suppkey)
SELECT supplier, total FROM revenue WHERE total = (SELECT max(total) FROM revenue)""",
    "Q18": """
SELECT o_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
FROM orders JOIN lineitem ON o_orderkey = l_orderkey
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey
                     HAVING sum(l_quantity) > 300)
GROUP BY o_custkey, o_orderkey, o_orderdate, o_totalprice
ORDER BY o_totalprice DESC, o_orderdate LIMIT 100""",
    "Q21": """
SELECT l1.l_suppkey, count(*) AS waits FROM lineitem l1 JOIN orders ON o_orderkey = l1.l_orderkey
WHERE o_orderstatus = 'F' AND l1.l_receiptdate > l1.l_commitdate
  AND EXISTS (SELECT * FROM lineitem l2
              WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
GROUP BY l1.l_suppkey ORDER BY waits DESC, l1.l_suppkey LIMIT 100""",
}
"""Queries by number. A query without its other tables resembles the specification's query."""
