"""The executable model of Lockstep: a second, independent reading of ``spec/`` in plain Python.

It uses the standard library only and never imports ``streaming``, torch, NumPy or lancedb. Every file
has the subject of one chapter: ``order``, ``assignment``, ``cycle``, ``checkpoint``, ``loader``
(chapter delivery). ``errors`` holds the codes; ``golden`` writes the golden vectors of the order;
``scenario`` runs vectors worked out by hand; ``explore`` searches all short histories of a
distributed run for one that breaks a law.

Nothing here changes in place: states are frozen, transitions are functions from a state to the next.
"""
