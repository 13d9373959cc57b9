"""The door of the house: `Engine` loads a model, `Session` is a conversation with it."""

from tensormill.config import EngineConfig, SamplingConfig
from tensormill.engine.engine import Engine
from tensormill.engine.session import Piece, Session
from tensormill.engine.timings import Timings

__all__ = ["Engine", "EngineConfig", "Piece", "SamplingConfig", "Session", "Timings"]
