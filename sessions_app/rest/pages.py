"""Pages of a session's log, put together from texts that are encoded already: no message is parsed to be sent."""

from __future__ import annotations

from sessions_app.changes import Committed
from sessions_app.context.viewing import show_all
from sessions_app.keys import Principal
from sessions_app.protocol import limits
from sessions_app.protocol.errors import Invalid
from sessions_app.rest.reading import Query
from sessions_app.selectors import Access, find_access, parent_access
from sessions_app.sql import messages_after, messages_before

READ_AT_ONCE = 50  # messages: bounds what a page of large ones can cost before it is cut at PAGE_BYTES
EMPTY_PAGE = '{"messages":[],"last_sequence":0,"first_sequence":1,"has_more":false}'


def history_page(session_id: str, principal: Principal, query_string: str) -> str:
    """`GET …/messages`: the page as JSON. Runs in a reader thread; access comes before the query string."""
    access = find_access(session_id, principal)
    query = Query(query_string)
    if not query.flag("inherited"):
        return log_page(access, query)
    if access.parent_pk is None or access.branched_at is None:
        return EMPTY_PAGE
    parent = parent_access(access.parent_pk, principal)
    if parent is None:
        return EMPTY_PAGE
    # In the parent the reader has the rights that it has there, and nothing after the branching is inherited.
    return log_page(parent._replace(last_sequence=min(parent.last_sequence, access.branched_at)), query)


def log_page(access: Access, query: Query) -> str:
    """The page that `after` or `before` and `limit` ask for, ascending, as JSON."""
    limit = query.limit()
    after, before = query.number("after"), query.number("before", least=1)
    if after is not None and before is not None:
        raise Invalid("Give after or before, not both.", field="before")
    last, floor = access.last_sequence, access.first_sequence
    if after is not None and after > last:
        raise Invalid("That sequence does not exist yet.", field="after", last_sequence=last)
    if before is not None:
        page = _downwards(access, min(before, last + 1), limit)
        has_more = bool(page) and page[0].sequence > floor
    else:
        page = _upwards(access, max(after or 0, floor - 1), limit)
        has_more = bool(page) and page[-1].sequence < last
    bodies = ",".join([message.body for message in page])
    return (
        f'{{"messages":[{bodies}],"last_sequence":{last},"first_sequence":{floor},'
        f'"has_more":{"true" if has_more else "false"}}}'
    )


def _upwards(access: Access, after: int, limit: int) -> list[Committed]:
    page: list[Committed] = []
    size = 0
    while len(page) < limit:
        wanted = min(READ_AT_ONCE, limit - len(page))
        # Up to the sequence that the page names as the last one: what comes in while we read is for the next page.
        some = messages_after(access.session_pk, after, wanted, up_to=access.last_sequence)
        if access.view:
            some = show_all(some, access.view, access.session_pk, access.reader_pk)
        for message in some:
            size += len(message.body)
            if page and size > limits.PAGE_BYTES:
                return page
            page.append(message)
        if len(some) < wanted:
            break
        after = some[-1].sequence
    return page


def _downwards(access: Access, before: int, limit: int) -> list[Committed]:
    page: list[Committed] = []
    size = 0
    while len(page) < limit:
        wanted = min(READ_AT_ONCE, limit - len(page))
        some = messages_before(access.session_pk, before, access.first_sequence, wanted)
        if access.view:
            some = show_all(some, access.view, access.session_pk, access.reader_pk)
        for message in reversed(some):
            size += len(message.body)
            if page and size > limits.PAGE_BYTES:
                return page[::-1]
            page.append(message)
        if len(some) < wanted:
            break
        before = some[0].sequence
    return page[::-1]
