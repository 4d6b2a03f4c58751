"""The executable model of Lockstep: a second, independent reading of ``spec/`` in plain Python.

It uses the standard library only and never imports ``streaming``, torch, NumPy or lancedb. Every file
has the subject of one chapter, or a part of it: ``order``, ``assignment``, ``cycle``, ``checkpoint``,
``ranks`` (states of many processes), ``identity``, ``tables``, ``settings`` (chapter arguments),
``loader`` (chapters delivery and calls), ``workers``, ``tools``. ``errors`` holds the codes;
``golden`` writes the golden vectors of the order; ``scenario`` runs vectors worked out by hand, with
``steps`` and ``bench``; ``explore`` and ``explore_workers`` search all short histories of a
distributed run for one that breaks a law.

Nothing here changes in place: states are frozen, transitions are functions from a state to the next.
"""
