"""Tools that read a saved state and say what it means; they change nothing (spec/tools.md)."""
