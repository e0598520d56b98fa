"""All settings, read from the environment once. `DATABASE_URL`, `REDIS_URL` and `HUB_…`; the defaults are the embedded hub's."""

from __future__ import annotations

import os
import secrets
import warnings
from pathlib import Path
from typing import Any

import dj_database_url

BASE_DIR = Path(__file__).resolve().parent.parent


def env(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def env_number(name: str, default: float) -> float:
    """A number, whole where it is: some of them are shown to clients."""
    value = float(os.environ.get(name) or default)
    return int(value) if value.is_integer() else value


def env_flag(name: str, default: bool = False) -> bool:
    value = os.environ.get(name)
    return default if value is None else value.strip().lower() in {"1", "true", "yes", "on"}


def env_list(name: str, default: str = "") -> list[str]:
    return [item.strip() for item in env(name, default).split(",") if item.strip()]


DEBUG = env_flag("HUB_DEBUG")
HUB_DATA_DIR = Path(env("HUB_DATA_DIR") or BASE_DIR / ".hub")


def _secret_key() -> str:
    """From `HUB_SECRET_KEY`, else from a file in the data directory that is made on the first start (mode 0600)."""
    if given := env("HUB_SECRET_KEY"):
        return given
    path = HUB_DATA_DIR / "secret_key"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        HUB_DATA_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = secrets.token_urlsafe(48)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:  # another process of the same start was first
            return path.read_text().strip() or fresh
        with os.fdopen(descriptor, "w") as file:
            file.write(fresh)
        return fresh


SECRET_KEY = _secret_key()

# The public address (https://hub.example.org): in links, cards and ws_url. Without it the request's own host is used.
HUB_PUBLIC_URL = env("HUB_PUBLIC_URL").rstrip("/")
ALLOWED_HOSTS = env_list("HUB_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1],testserver")
CSRF_TRUSTED_ORIGINS = env_list("HUB_TRUSTED_ORIGINS")
if HUB_PUBLIC_URL:
    _public_host = HUB_PUBLIC_URL.split("://", 1)[-1].split("/")[0].rsplit(":", 1)[0]
    ALLOWED_HOSTS.append(_public_host)
    CSRF_TRUSTED_ORIGINS.append("/".join(HUB_PUBLIC_URL.split("/")[:3]))

INSTALLED_APPS = [
    "daphne",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "sessions_app",
    "traces_app",
    "hub.a2a",
    "hub",
    "hub.a2a.outbound",
    "hub.a2a.push",
]
MIDDLEWARE = [
    "sessions_app.rest.middleware.ApiMiddleware",  # the outermost: /api and the probes need none of the others
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "hub.urls"
ASGI_APPLICATION = "hub.asgi.application"
APPEND_SLASH = False
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

_database: dict[str, Any] = dict(
    dj_database_url.parse(env("DATABASE_URL") or f"sqlite:///{HUB_DATA_DIR / 'hub.sqlite3'}")
)
if _database["ENGINE"] == "django.db.backends.sqlite3":
    _database["ENGINE"] = "hub.sqlite"
    # An ack promises durability, so FULL; IMMEDIATE because a deferred transaction that reads first can't wait for the lock.
    _database["OPTIONS"] = {
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000;",
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
    }
    _database["CONN_MAX_AGE"] = 0
else:
    _database["CONN_MAX_AGE"] = 0
    _database["OPTIONS"] = {
        **_database.get("OPTIONS", {}),
        # Only for `sessions_app.db.prepared_cursor`; a pooler that hands connections on between transactions may want it off.
        "prepare_threshold": 5 if env_flag("HUB_DATABASE_PREPARED", True) else None,
        "options": "-c lock_timeout=2000 -c idle_in_transaction_session_timeout=5000",
        "pool": {
            "min_size": 1,
            "max_size": int(env_number("HUB_DATABASE_POOL", 10)),
            "timeout": env_number("HUB_DATABASE_POOL_TIMEOUT", 5),
        },
    }
DATABASES = {"default": _database}

REDIS_URL = env("REDIS_URL")
if REDIS_URL:
    CHANNEL_LAYERS: dict[str, Any] = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            # redis-py's own time-out equals the layer's pop time-out, so idle sockets would die after 5 s.
            "CONFIG": {"hosts": [{"address": REDIS_URL, "socket_timeout": None, "health_check_interval": 15}]},
        }
    }
else:
    CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True
STATIC_URL = "static/"
STATIC_ROOT = HUB_DATA_DIR / "static"
WHITENOISE_USE_FINDERS = True  # static files come from the packages, no collectstatic
warnings.filterwarnings("ignore", message="No directory at", module="django.core.handlers.base")
WHITENOISE_AUTOREFRESH = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
LOGIN_URL = "admin:login"
if HUB_PUBLIC_URL.startswith("https://"):
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env_flag("HUB_BEHIND_PROXY") else None

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["sessions_app.rest.authentication.KeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": [],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "sessions_app.rest.errors.drf_exception_handler",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Session Hub",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "DESCRIPTION": "Durable, real-time conversations between agents. The wire contract, protocol 1.",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": ["traces_app.rest.shapes.add_traces", "sessions_app.rest.document.add_the_rest"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"one_line": {"()": "sessions_app.logs.OneLine"}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["one_line"]}},
    "root": {"handlers": ["console"], "level": env("HUB_LOG_LEVEL", "WARNING")},
    "loggers": {
        "hub": {"level": env("HUB_LOG_LEVEL", "INFO")},
        "httpx": {"level": "WARNING"},  # it writes down every URL, and those of others may hold their secrets
        "a2a": {"level": "WARNING"},
    },
}

# The calls upwards, each a short visible list of dotted names (see sessions_app/hooks.py).
APPEND_HOOKS: list[str] = ["traces_app.intake.open_traces"]
CLOSE_HOOKS: list[str] = ["traces_app.intake.cancel_open_traces"]
QUESTION_HOOKS: list[str] = ["hub.a2a.questions.settle"]
KEEP_HOOKS: list[str] = ["hub.a2a.questions.keeps_open"]
STATUS_HOOKS: list[str] = ["traces_app.intake.running_work"]
FRAME_HANDLERS: dict[str, str] = {
    "trace.accept": "traces_app.frames.accept",
    "trace.event": "traces_app.frames.event",
    "trace.complete": "traces_app.frames.complete",
    "trace.fail": "traces_app.frames.fail",
}
# `sweep(now) -> [(Celery task, [keys])]`: what is due, taken by compare-and-set; every process with a keeper asks each second.
SWEEPS: list[str] = [
    "traces_app.classifier.take_due",
    "hub.a2a.outbound.ends.take_due",
    "hub.a2a.outbound.refreshing.take_due",
    "hub.a2a.push.outbox.take_due",
    "hub.a2a.received.take_due",
]
# Whether there is an executor of that name: asked when an agent is given one.
EXECUTOR_HOOKS: list[str] = ["traces_app.executors.registry.check_name"]
# What an executor makes of an agent's executor_config (sessions_app/services/setups.py).
EXECUTOR_SETUPS: dict[str, str] = {"a2a": "hub.a2a.outbound.registration.RemoteSetup"}
READY_CHECKS: dict[str, str] = {"workers": "traces_app.health.workers"}
RUNTIME_PARTS: list[str] = ["traces_app.board.Board", "hub.a2a.desk.Desk"]

# Traces. The workers' queue is Redis in production; without it (the embedded hub) workers watch the database themselves.
HUB_EMBEDDED = env_flag("HUB_EMBEDDED")
HUB_BROKERLESS = not REDIS_URL
HUB_CELERY_APP = "hub.celery.app"
CELERY_BROKER_URL = REDIS_URL or "memory://localhost//"
CELERY_BROKER_TRANSPORT = None if REDIS_URL else "hub.embedded.queue:Transport"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = (
    {"socket_connect_timeout": 1, "socket_timeout": 5, "health_check_interval": 10} if REDIS_URL else {}
)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False  # the database knows what was lost, and the sweep brings it back
CELERY_TASK_DEFAULT_QUEUE = env("HUB_QUEUE", "hub.traces")
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = env_number("HUB_TRACE_STOP_SECONDS", 10)
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False  # nothing depends on it, and its replies would stay in Redis
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
HUB_TRACE_LEASE_SECONDS = env_number("HUB_TRACE_LEASE_SECONDS", 15)  # a worker that is silent for so long has lost it
HUB_DELEGATE_LEASE_SECONDS = env_number("HUB_DELEGATE_LEASE_SECONDS", 60)  # the same for a connected agent
HUB_TRACE_DEAF_SECONDS = env_number("HUB_TRACE_DEAF_SECONDS", 30)  # /readyz: so long may a trace wait untaken
HUB_TRACE_SECONDS = env_number("HUB_TRACE_SECONDS", 600)  # the longest that one attempt may take
HUB_TRACE_INPUT_SECONDS = env_number("HUB_TRACE_INPUT_SECONDS", 86_400)  # how long a trace waits for an answer
HUB_TRACE_STOP_SECONDS = env_number("HUB_TRACE_STOP_SECONDS", 10)  # what a stopping worker gives its traces
HUB_TRACE_HISTORY = int(env_number("HUB_TRACE_HISTORY", 20))  # messages of the talk that an executor is given
HUB_TRACE_KEEPER = True  # whether serving processes sweep; tests that look at single steps do without
HUB_WORKER_THREADS = int(env_number("HUB_WORKER_THREADS", 4))  # traces at once in the embedded hub
HUB_DEFAULT_EXECUTOR = env("HUB_DEFAULT_EXECUTOR", "planner")  # for requires_execution without an agent that can; or ""
HUB_TOOLS = env_list("HUB_TOOLS")  # dotted names of further tools for the planner, each a traces_app.tools.Tool
HUB_EXECUTORS: dict[str, str] = {
    "planner": "traces_app.executors.planner.PlannerExecutor",
    "a2a": "hub.a2a.outbound.executor.RemoteAgent",
    "llm": "traces_app.executors.llm.executor.LlmExecutor",
    "orchestrator": "traces_app.executors.orchestrator.executor.OrchestratorExecutor",
}
HUB_CLASSIFIER_MODEL = env("HUB_CLASSIFIER_MODEL")  # asked whether what no rule decides is work; "" is nobody
HUB_TALKING_EXECUTORS = ["llm", "orchestrator", "a2a"]  # whatever is said to such an agent is work: nobody else answers

# Models. Any endpoint that speaks OpenAI's chat completions; the key goes to HUB_LLM_BASE_URL and nowhere else.
# An agent's executor_config may name another model, and a key by the name NAME of a variable HUB_LLM_KEY_NAME.
HUB_LLM_MODEL = env("HUB_LLM_MODEL")  # a name, or "openai:name", "anthropic:name"; "" is none
HUB_LLM_BASE_URL = env("HUB_LLM_BASE_URL")  # http://127.0.0.1:11434/v1; "" is the provider's own
HUB_LLM_API_KEY = env("HUB_LLM_API_KEY")
HUB_LLM_SECONDS = env_number("HUB_LLM_SECONDS", 60)  # a model that is silent for so long is given up
HUB_LLM_REQUESTS = int(env_number("HUB_LLM_REQUESTS", 25))  # to the model, per trace; 0 is no limit
HUB_LLM_TOOL_CALLS = int(env_number("HUB_LLM_TOOL_CALLS", 100))  # per trace; 0 is no limit
HUB_LLM_TOKENS = int(env_number("HUB_LLM_TOKENS", 0))  # per trace; 0 is no limit

# Context passing: what goes along with a question to an agent (sessions_app/context/).
HUB_CONTEXT_ITEMS = int(env_number("HUB_CONTEXT_ITEMS", 6))  # messages that rules and relevance may add to a question
HUB_CONTEXT_TOKENS = int(env_number("HUB_CONTEXT_TOKENS", 400))  # and what they may cost together
HUB_CONTEXT_SCORE = env_number("HUB_CONTEXT_SCORE", 2.0)  # below this nothing is relevant (BM25)
HUB_CONTEXT_WINDOW = int(env_number("HUB_CONTEXT_WINDOW", 32_000))  # tokens of an agent whose card says nothing of it
HUB_CONTEXT_RESERVE_SECONDS = env_number(
    "HUB_CONTEXT_RESERVE_SECONDS", 900
)  # when nobody says what became of a delivery
HUB_SUMMARY_ROUNDS = int(env_number("HUB_SUMMARY_ROUNDS", 10))  # completed rounds from one summary to the next
HUB_SUMMARY_TOKENS = int(env_number("HUB_SUMMARY_TOKENS", 400))
HUB_SUMMARISER = env(
    "HUB_SUMMARISER"
)  # dotted name of a writer (sessions_app/context/summaries.py); else sentences are picked
HUB_HISTORY_SECONDS = env_number(
    "HUB_HISTORY_SECONDS", 2_592_000
)  # an agent's own history that is unused is forgotten; 0: never

# Agents elsewhere (A2A). A hub goes to public addresses over https only, and besides to what this names: host names,
# addresses, networks (127.0.0.0/8), or * for all; also over http. Cards, remote agents and push notifications alike.
HUB_A2A_ALLOW = env_list("HUB_A2A_ALLOW")
HUB_A2A_CARD_SECONDS = env_number("HUB_A2A_CARD_SECONDS", 3600)  # how long a card is fresh that does not say so itself
HUB_A2A_SILENCE_SECONDS = env_number("HUB_A2A_SILENCE_SECONDS", 60)  # a silent stream is taken up anew after this
HUB_A2A_PUSH_ATTEMPTS = int(env_number("HUB_A2A_PUSH_ATTEMPTS", 10))  # then a push notification is dead
HUB_A2A_PUSH_SOURCE = "hub.a2a.updates"  # what push notifications are made of (hub/a2a/push/source.py)
HUB_A2A_PUSH_TASK = "hub.a2a.tasks.task_proto"
HUB_A2A_RETRY_SECONDS = env_number("HUB_A2A_RETRY_SECONDS", 60)  # how long a remote may be out of reach within a task

# Rates are per agent and process, per second; 0 is off. A burst is what may come at once.
HUB_RATE_MESSAGES = env_number("HUB_RATE_MESSAGES", 500)
HUB_BURST_MESSAGES = env_number("HUB_BURST_MESSAGES", 5000)
HUB_RATE_SESSIONS = env_number("HUB_RATE_SESSIONS", 20)
HUB_BURST_SESSIONS = env_number("HUB_BURST_SESSIONS", 500)
HUB_RATE_REQUESTS = env_number("HUB_RATE_REQUESTS", 500)
HUB_BURST_REQUESTS = env_number("HUB_BURST_REQUESTS", 5000)
HUB_SOCKETS_PER_AGENT = int(env_number("HUB_SOCKETS_PER_AGENT", 5000))

HUB_HEARTBEAT_SECONDS = env_number("HUB_HEARTBEAT_SECONDS", 20)  # the server pings this often
HUB_PING_TIMEOUT_SECONDS = env_number("HUB_PING_TIMEOUT_SECONDS", 20)  # and gives up on a silent peer after this
HUB_AUTO_ACK_SECONDS = env_number("HUB_AUTO_ACK_SECONDS", HUB_HEARTBEAT_SECONDS + HUB_PING_TIMEOUT_SECONDS + 5)
HUB_WINDOW = int(env_number("HUB_WINDOW", 1000))
HUB_LOOK_SECONDS = env_number("HUB_LOOK_SECONDS", 1.0)  # how often a process looks for what no hint told it
HUB_LEASE_SECONDS = env_number("HUB_LEASE_SECONDS", 30)  # a silent process's presence ends after this
HUB_STALL_SECONDS = env_number("HUB_STALL_SECONDS", 60)  # a socket that takes nothing for this long is closed (4408)
HUB_ACK_GRACE_SECONDS = env_number("HUB_ACK_GRACE_SECONDS", 30)
HUB_CLOSE_SECONDS = env_number("HUB_CLOSE_SECONDS", 5)  # how long a stopping process waits for its sockets
HUB_DROP_HINTS = env_number("HUB_DROP_HINTS", 0)  # a fault for tests: this share of hints is thrown away
HUB_ROOTS = env_list("HUB_ROOTS")  # the only directories that built-in tools may read
HUB_KIND_RULES_SECONDS = 5.0

# A2A. Cards and links show HUB_PUBLIC_URL, else the address that the hub listens on; never the Host of a request.
HUB_A2A_ROOT_AGENT = env("HUB_A2A_ROOT_AGENT")  # whose card is at the host's root, too
HUB_A2A_LEGACY_CARD = env_flag("HUB_A2A_LEGACY_CARD", True)  # cards carry the fields of A2A 0.3
HUB_A2A_IDEMPOTENT = env_flag("HUB_A2A_IDEMPOTENT", True)  # the same messageId is the same message
HUB_A2A_RECEIVED_SECONDS = env_number(
    "HUB_A2A_RECEIVED_SECONDS", 2_592_000
)  # how long a messageId is remembered, at least until its task has ended; 0: for ever
HUB_A2A_CONTEXT_SECONDS = env_number(
    "HUB_A2A_CONTEXT_SECONDS", 2_592_000
)  # how long a context may be silent; 0: for ever
HUB_A2A_CARD_SECONDS = int(env_number("HUB_A2A_CARD_SECONDS", 60))  # how long a card may be kept
# A blocking send is answered with its task as it is when for so long nobody has begun it (the agent is away).
HUB_A2A_WAIT_SECONDS = env_number("HUB_A2A_WAIT_SECONDS", 50)
HUB_A2A_PING_SECONDS = int(env_number("HUB_A2A_PING_SECONDS", 3))  # stock clients give a silent stream up after 5 s
HUB_A2A_INPUT_MODES = env_list(
    "HUB_A2A_INPUT_MODES", "text/*,image/*,audio/*,video/*,application/json,application/pdf,application/octet-stream"
)
HUB_A2A_OUTPUT_MODES = env_list("HUB_A2A_OUTPUT_MODES", "text/plain,text/markdown,application/json")
