"""Compiled kernels. Import a module of this folder only from the wrapper of the same name.

They take integers (addresses, counts, widths) and trust them: the wrappers in ``glaive.kernels``
have checked every range. Kernels never allocate and never raise. They are module-level functions
under ``@kernel`` because numba finds only those in its disk cache.
"""
