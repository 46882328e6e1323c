"""Compiled kernels. Import a module of this folder only from the wrapper of the same name.

They take integers (addresses, counts, widths) and trust them: the wrappers in ``glaive.kernels``
have checked every range. Kernels work in the memory that they get and return codes for errors.
They are module-level functions under ``@kernel`` because numba's disk cache finds only these.
"""
