"""OpenCognit: a daemon that runs a company of AI agents."""

__version__ = "0.1.0"
