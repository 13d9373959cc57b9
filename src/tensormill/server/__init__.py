"""Serves models over HTTP: each API dialect is a pair of translations to one internal request (`request.py`).

`process.py` has the engine in a process of its own, `answering.py` turns requests into answers, `app.py` is the door.
"""
