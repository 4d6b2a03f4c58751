"""The checks of this specification as a kit that anybody points at a loader (spec/conformance.md)."""
