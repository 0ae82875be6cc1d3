"""Processes that begin in a moment: what takes long is the imports, which one does, and the others are its copies."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["__main__", "tests.crash.counting_service", "tests.crash.await_service"])
