"""The client SDK: write an agent that holds durable sessions with others. Needs no Django.

from hub.client import A2ASessionClient
"""

from hub.client.calls import Agent, History, Trace
from hub.client.client import A2ASessionClient
from hub.client.errors import (
    Busy,
    ClientClosed,
    ClientError,
    Conflict,
    Forbidden,
    HubError,
    Internal,
    Invalid,
    NotFound,
    ProtocolFault,
    RateLimited,
    SendTimeout,
    SessionClosed,
    StateInUse,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from hub.client.frames import (
    Chunk,
    Message,
    NewSession,
    Participant,
    Presence,
    Read,
    Session,
    SessionUpdate,
    TraceUpdate,
)
from hub.client.sending import Sent
from hub.client.tracework import Completed, TraceFailed, TraceRun

__all__ = [
    "A2ASessionClient",
    "Agent",
    "Busy",
    "Chunk",
    "ClientClosed",
    "ClientError",
    "Completed",
    "Conflict",
    "Forbidden",
    "History",
    "HubError",
    "Internal",
    "Invalid",
    "Message",
    "NewSession",
    "NotFound",
    "Participant",
    "Presence",
    "ProtocolFault",
    "RateLimited",
    "Read",
    "SendTimeout",
    "Sent",
    "Session",
    "SessionClosed",
    "SessionUpdate",
    "StateInUse",
    "TooLarge",
    "Trace",
    "TraceFailed",
    "TraceRun",
    "TraceUpdate",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
]
