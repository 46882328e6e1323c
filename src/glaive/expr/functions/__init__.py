"""Scalar functions of filters and computed columns, one file per topic.

To add a function, add one decorated with ``@function`` to the module of its topic. Functions
work on Arrow values and are independent of expression trees; ``registry.find`` looks them up by
name.
"""
