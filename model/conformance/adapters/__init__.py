"""Adapters that the kit brings along."""
