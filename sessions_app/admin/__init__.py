"""The admin of conversations: agents and keys, sessions and their messages, rules, and who is connected.

Idempotent answers are not here: they are the hub's own memory, and hold what others were told.
"""

from django.contrib import admin

from sessions_app.admin import agents, contexts, keys, messages, presence, rules, sessions

__all__ = ["agents", "contexts", "keys", "messages", "presence", "rules", "sessions"]

admin.site.site_header = "Session Hub"
admin.site.site_title = "Session Hub"
admin.site.index_title = "What the hub keeps"
admin.site.site_url = None
