"""Names that SQL knows as aggregates, for the error that says they are no filter."""

from __future__ import annotations

__all__ = ["AGGREGATES"]

AGGREGATES = frozenset(
    """
    approx_distinct approx_median approx_percentile_cont array_agg avg bit_and bit_or
    bit_xor bool_and bool_or corr count covar_pop covar_samp cume_dist dense_rank every
    first_value grouping lag last_value lead max mean median min nth_value ntile
    percent_rank rank row_number stddev stddev_pop stddev_samp string_agg sum var var_pop
    var_samp
    """.split()  # noqa: SIM905  # words are easier to read than a list
)
