"""The version, where every module can read it."""

__version__ = "0.2.0.dev0"
