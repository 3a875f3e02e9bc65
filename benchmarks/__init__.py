"""Figures of the running system, each with what it is measured against. Shipped to nobody; nothing imports it."""
