"""Compiled loops. Import a module of this folder only from the wrapper of the same name.

All functions take integers (addresses, counts, widths) and trust them: the wrappers in
``glaive.kernels`` have checked every range. Loops never allocate and never raise. They are
module-level functions under ``@loop`` because numba finds only those in its disk cache.
"""
