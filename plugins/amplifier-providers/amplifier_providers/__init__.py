"""Share the common parts of providers that ask a service by its SDK.

They are a package of their own, and no part of the kernel: the providers run on other kernels of the same name, too,
and bring these parts with them.
"""
