"""Mithril: write a model once, run it on any backend."""

from ._core import __version__

__all__ = ["__version__"]
