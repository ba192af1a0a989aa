"""Which items somebody may have: the one definition of room, and the queries that find the next items.

An item has room for a person while it is open, fewer people than its overlap labelled it or have it open now, fewer
people than `skip_after` skipped it, and this person did not label it. Known answers are given to everybody, so their
room does not end: a share of them is mixed in, the same ones first for everybody, and the rest comes last.
"""

from __future__ import annotations

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Float,
    Integer,
    Text,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
)

from prefrl.data.store.schema import assignments, items

OPEN = and_(items.c.state == "open", items.c.given < items.c.overlap)  # as the index of the wanted items has it
_person: BindParameter[str] = bindparam("person", type_=Text())
_now: BindParameter[float] = bindparam("now", type_=Float())
_limit: BindParameter[int] = bindparam("limit", type_=Integer())
_skip_after: BindParameter[int] = bindparam("skip_after", type_=Integer())
_live = and_(assignments.c.state == "leased", assignments.c.lease_until > _now)
_of_item = assignments.c.item == items.c.id
OTHERS = select(func.count()).where(_of_item, assignments.c.person != _person, _live).correlate(items).scalar_subquery()
MINE_DONE = exists().where(_of_item, assignments.c.person == _person, assignments.c.state == "done").correlate(items)
_MINE = (
    exists()
    .where(_of_item, assignments.c.person == _person, or_(assignments.c.state == "done", _live))
    .correlate(items)
)
_UNSKIPPED = or_(_skip_after == 0, items.c.skipped < _skip_after)
ROOM: ColumnElement[bool] = and_(OPEN, _UNSKIPPED, items.c.given + OTHERS < items.c.overlap)
FREE: ColumnElement[bool] = and_(ROOM, ~MINE_DONE)  # for a person who was not given the item

WANTED = (
    select(items.c.id)
    .where(ROOM, ~_MINE)
    .order_by(items.c.is_gold, items.c.priority.desc(), items.c.given, items.c.number)
    .limit(_limit)
)
GOLD = (
    select(items.c.id)
    .where(items.c.gold.is_not(None), items.c.state == "open", ~_MINE)
    .order_by(items.c.number)
    .limit(_limit)
)
DISPUTED = (
    select(items.c.id)
    .where(items.c.state == "adjudication", ~_MINE, OTHERS == 0)
    .order_by(items.c.priority.desc(), items.c.number)
    .limit(_limit)
)
LEFT = select(func.count()).select_from(items).where(OPEN, _UNSKIPPED)  # less what is mine, and taken
LEFT_MINE = LEFT.join(assignments, _of_item).where(assignments.c.person == _person, assignments.c.state == "done")
LEFT_DISPUTED = select(func.count()).select_from(items).where(items.c.state == "adjudication", ~MINE_DONE)
LEFT_TAKEN = (
    select(func.count())
    .select_from(items)
    .where(
        OPEN,
        _UNSKIPPED,
        items.c.id.in_(select(assignments.c.item).where(_live, assignments.c.person != _person)),
        items.c.given + OTHERS >= items.c.overlap,
        ~MINE_DONE,
    )
)
