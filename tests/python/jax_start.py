"""How the checks of meshes start in one of several processes of JAX."""

import os

import jax


def join_processes() -> None:
    """Joins the processes that PROCESS names: a port, their number, and the number of this one.
    Without it, this process is alone."""
    if "PROCESS" in os.environ:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        port, count, own = (int(text) for text in os.environ["PROCESS"].split())
        jax.distributed.initialize(f"localhost:{port}", count, own)
