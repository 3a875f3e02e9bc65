"""OpenCognit: a daemon that runs a company of AI agents."""
