"""All lemmas, by subject."""

from __future__ import annotations

from spec.proofs import arithmetic, assignment, boundary, cycle, order, places, workers

LEMMAS = (
    *arithmetic.LEMMAS,
    *assignment.LEMMAS,
    *cycle.LEMMAS,
    *places.LEMMAS,
    *order.LEMMAS,
    *workers.LEMMAS,
    *boundary.LEMMAS,
)
