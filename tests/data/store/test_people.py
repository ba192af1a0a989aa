"""Accounts, sessions and one-time links."""

from __future__ import annotations

import sqlite3

import pytest
from stores import at_once, opened, pairs

from prefrl.data.store import Conflict, Invalid, NotYours


def test_accounts(store):
    ann = store.people.add("Ann", "admin", "hash", now=1.0)
    assert (ann.name, ann.role, ann.active, ann.created, ann.password_hash) == ("Ann", "admin", True, 1.0, "hash")
    assert store.people.get("ann") == ann and store.people.get("bob") is None
    assert "hash" not in repr(ann)
    store.people.add(" Zoë ", "annotator", now=2.0)
    assert [person.name for person in store.people.list()] == ["Ann", "Zoë"]


@pytest.mark.parametrize(
    "name",
    [
        "alice bell",
        "ALICE BELL",
        "Alice Bell ",
        "Alice  Bell",
        "\uff21lice Bell",  # begins with a full-width letter
        "\u0410lice Bell",  # ... a Cyrillic one
        "\u0391lice Bell",  # ... a Greek one
        "AIice BeII",  # capital i for l
        "A1ice Be11",
        "Ali\u0441\u0435 Bell",
    ],
)
def test_nobody_passes_for_another(name, store):
    store.people.add("Alice Bell", "admin")
    with pytest.raises(Conflict, match="somebody called 'Alice Bell'"):
        store.people.add(name, "annotator")
    assert len(store.people.list()) == 1


def test_names_of_all_scripts_can_be(store):
    names = [
        "Нина",
        "Анна",
        "Anna",
        "Ἑλένη",
        "李雷",
        "यश",
        "עדה",
        "محمد",
        "Zoë",
        "Zoe",
        "Neil",
        "Nell",
        "김철수",
        "O'Brien",
    ]
    for name in names:
        store.people.add(name, "annotator")
    assert sorted(person.name for person in store.people.list()) == sorted(names)
    assert {store.people.get(name).name for name in names} == set(names)


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "a\u202eb", "a\u200bb", "a\0b", "\u3164", "a\ufe0f", "\u2800", "x" * 101]
)
def test_names_can_be_seen(name, store):
    with pytest.raises(Invalid, match="characters that can be seen"):
        store.people.add(name, "annotator")


def test_roles(store):
    store.people.add("ann", "annotator")
    store.people.set_role("ann", "reviewer", by="boss")
    assert store.people.get("ann").role == "reviewer"
    with pytest.raises(Invalid, match="Did you mean 'manager'"):
        store.people.set_role("ann", "manger")
    with pytest.raises(NotYours, match=r"no account 'anne'\. Did you mean 'ann'"):
        store.people.set_role("anne", "manager")


def test_there_is_always_an_admin(store):
    store.people.add("ann", "admin")
    for change in (
        lambda: store.people.set_role("ann", "manager"),
        lambda: store.people.set_active("ann", False),
    ):
        with pytest.raises(Invalid, match="last admin"):
            change()
    assert (store.people.get("ann").role, store.people.get("ann").active) == ("admin", True)
    store.people.add("bob", "admin")
    store.people.set_role("ann", "manager")
    assert store.people.get("ann").role == "manager"


def test_sessions(store):
    store.people.add("ann", "annotator")
    login = store.people.open_session("ann", 2.0, now=0.0)
    assert store.people.session(login.token, now=7199.0) == login
    assert login.person.name == "ann" and login.csrf not in (login.token, "")
    assert store.people.session(login.token, now=7200.0) is None
    assert store.people.session("another", now=0.0) is None
    store.people.close_session(login.token)
    assert store.people.session(login.token, now=1.0) is None


def test_who_is_kept_out_is_logged_out(store):
    store.people.add("boss", "admin")
    store.people.add("ann", "annotator")

    def login():
        return store.people.open_session("ann", 1.0, now=0.0).token

    first = login()
    store.people.set_password("ann", "new", by="boss")
    assert store.people.session(first, now=1.0) is None
    second = login()
    store.people.close_sessions("ANN")
    assert store.people.session(second, now=1.0) is None
    third = login()
    store.people.set_active("ann", False, by="boss")
    assert store.people.session(third, now=1.0) is None
    with pytest.raises(NotYours, match="cannot log in"):
        login()
    store.people.set_active("ann", True, by="boss")
    assert store.people.session(third, now=1.0) is None and login()


def test_a_link_works_once(store):
    token = store.people.invite("manager", 1.0, now=0.0)
    offer = store.people.invitation(token, now=1.0)
    assert (offer.role, offer.name, offer.expires) == ("manager", "", 3600.0)
    assert store.people.redeem(token, "ann", "hash", now=2.0).role == "manager"
    for late in (lambda: store.people.redeem(token, "bob", "hash", now=3.0),):
        with pytest.raises(NotYours, match="This link was used"):
            late()
    assert store.people.invitation(token, now=3.0) is None and store.people.get("bob") is None


def test_a_link_for_many_at_once_makes_one_account(store):
    token = store.people.invite("annotator", 1.0, now=0.0)
    names = [f"p{n}" for n in range(6)]
    errors = at_once([lambda name=name: store.people.redeem(token, name, "", now=1.0) for name in names])
    assert len(errors) == 5 and all(isinstance(error, NotYours) for error in errors)
    assert len(store.people.list()) == 1


def test_links_end(store):
    token = store.people.invite("annotator", 1.0, now=0.0)
    with pytest.raises(NotYours):
        store.people.redeem(token, "ann", "", now=3600.0)
    assert store.people.invitation("made up") is None


def test_a_taken_name_does_not_use_the_link_up(store):
    store.people.add("ann", "admin")
    token = store.people.invite("annotator", 1.0, now=0.0)
    with pytest.raises(Conflict):
        store.people.redeem(token, "Ann", "", now=1.0)
    assert store.people.redeem(token, "bob", "", now=1.0).name == "bob"


def test_a_link_for_somebody(store):
    token = store.people.invite("admin", 1.0, name="boss", now=0.0)
    with pytest.raises(Invalid, match="for 'boss'"):
        store.people.redeem(token, "ann", "", now=1.0)
    assert store.people.redeem(token, "Boss", "one", now=1.0).role == "admin"
    login = store.people.open_session("boss", 1.0, now=2.0)
    again = store.people.invite("annotator", 1.0, name="boss", now=3.0)
    changed = store.people.redeem(again, "boss", "two", now=4.0)
    assert (changed.role, changed.password_hash) == ("admin", "two")  # a new password, and nothing else
    assert store.people.session(login.token, now=4.0) is None


def test_a_link_for_a_new_password_opens_no_account_that_has_risen(store):
    """Else a manager keeps a link for somebody, and takes the account over once that is an admin's."""
    store.people.add("boss", "admin")
    store.people.add("dan", "annotator", "old")
    token = store.people.invite("annotator", 1.0, name="dan", by="mona", now=0.0)
    store.people.set_role("dan", "admin", by="boss")
    with pytest.raises(NotYours, match="changed since then"):
        store.people.redeem(token, "dan", "new", now=1.0)
    assert store.people.get("dan").password_hash == "old"


def test_a_link_for_somebody_new_opens_no_account_that_was_made_since(store):
    store.people.add("mona", "manager")
    token = store.people.invite("annotator", 1.0, name="carol", by="mona", now=0.0)
    store.people.add("carol", "admin", "old")
    with pytest.raises(Conflict):
        store.people.redeem(token, "carol", "new", now=1.0)
    assert store.people.get("carol").password_hash == "old"
    with pytest.raises(Conflict, match="new password"):
        store.people.invite("annotator", 1.0, name="Carol", fresh=True)


def test_links_end_with_what_their_maker_may_do(store):
    store.people.add("boss", "admin")
    for change in (
        lambda: store.people.set_active("mona", False, "boss"),
        lambda: store.people.set_role("mona", "annotator", "boss"),
    ):
        if store.people.get("mona") is None:
            store.people.add("mona", "manager")
        store.people.set_active("mona", True)
        store.people.set_role("mona", "manager")
        token, other = (store.people.invite("annotator", 1.0, by=by, now=0.0) for by in ("mona", "boss"))
        used = store.people.invite("annotator", 1.0, by="mona", now=0.0)
        store.people.redeem(used, f"new{used[:5]}", "", now=1.0)
        change()
        assert store.people.invitation(token, now=1.0) is None
        assert store.people.invitation(other, now=1.0) is not None


def test_who_is_shut_out_gets_in_by_no_link(store):
    store.people.add("boss", "admin")
    store.people.add("ann", "annotator", "old")
    token = store.people.invite("annotator", 1.0, name="ann", by="boss", now=0.0)
    store.people.set_active("ann", False, "boss")
    with pytest.raises(NotYours, match="changed since then"):
        store.people.redeem(token, "ann", "new", now=1.0)


def test_labels_from_elsewhere_are_nobodys_who_takes_their_name(store):
    store.add_items(pairs(1))
    store.submit("i0", "bob", "first")
    token = store.people.invite("annotator", 1.0, now=0.0)
    with pytest.raises(Conflict, match="'bob' has labelled here"):
        store.people.redeem(token, "bob", "", now=1.0)
    assert store.people.redeem(token, "eve", "", now=1.0).name == "eve"
    named = store.people.invite("annotator", 1.0, name="bob", now=0.0)  # whoever made this knows who it is for
    assert store.people.redeem(named, "bob", "", now=1.0).name == "bob"


def test_secrets_are_not_in_the_file(tmp_path):
    with opened(tmp_path / "a.db") as store:
        store.people.add("ann", "admin", "argon")
        login = store.people.open_session("ann", 1.0)
        token = store.people.invite("annotator", 1.0)
        store.backup(tmp_path / "copy.db")
    with sqlite3.connect(tmp_path / "copy.db") as copy:
        dump = "\n".join(copy.iterdump())
    copy.close()
    assert "argon" in dump  # so the dump does hold what is stored
    assert not [secret for secret in (login.token, login.csrf, token) if secret in dump]


def test_people_are_in_the_audit_log_without_their_secrets(store):
    store.people.add("boss", "admin", "argon", now=1.0)
    store.people.add("ann", "annotator", by="boss", now=2.0)
    store.people.set_password("ann", "argon2", by="boss")
    store.people.set_role("ann", "reviewer", by="boss")
    said = [(event.person, event.kind, dict(event.body)) for event in store.events()]
    assert said == [
        ("boss", "person added", {"name": "boss", "role": "admin"}),
        ("boss", "person added", {"name": "ann", "role": "annotator"}),
        ("boss", "person password", {"name": "ann"}),
        ("boss", "person role", {"name": "ann", "role": "reviewer"}),
    ]
