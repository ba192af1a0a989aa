"""Signing in and out, and one-time links."""

from __future__ import annotations

import re

import pytest
from annotating import place

from annotate.pages.plain import language_of
from annotate.serve import first_link, invited
from prefrl.errors import ConfigError

PASSWORD = "correct horse"


def join(client, link, **form):
    return client.post(link, data=form)


def test_the_first_link_makes_an_admin_and_works_once(tmp_path):
    with place(tmp_path) as there:
        link = first_link(there.studio, "")
        client = there.client()
        page = client.get(link)
        assert page.status_code == 200 and "You will run this project" in page.text
        assert client.get(link).status_code == 200  # looking at it does not use it
        joined = join(client, link, name="Ann", password=PASSWORD)
        assert (joined.status_code, joined.headers["location"]) == (303, "/label")
        assert client.get("/api/me").json() | {"name": "Ann", "role": "admin"} == client.get("/api/me").json()
        assert there.client().get(link).status_code == 404
        again = join(there.client(), link, name="Eve", password=PASSWORD)
        assert again.status_code == 404 and "used already" in again.text
        assert [person.name for person in there.store.people.list()] == ["Ann"]
        assert first_link(there.studio, "") == ""


def test_a_cookie_is_out_of_reach_of_scripts_and_of_other_sites(tmp_path):
    with place(tmp_path) as there:
        joined = join(there.client(), first_link(there.studio, ""), name="Ann", password=PASSWORD)
        cookie = joined.headers["set-cookie"]
        assert cookie.startswith(f"{there.studio.cookie}=") and "HttpOnly" in cookie and "SameSite=lax" in cookie
        assert "Secure" not in cookie
        secure = there.client()
        secure.base_url = "https://testserver"
        link = invited(there.studio, "annotator", "")
        joined = secure.post(link, data={"name": "Bob"}, headers={"origin": "https://testserver"})
        assert "Secure" in joined.headers["set-cookie"]


def test_without_a_password_nobody_can_sign_in_as_them(tmp_path):
    with place(tmp_path) as there:
        client = there.client()
        assert join(client, first_link(there.studio, ""), name="Ann").status_code == 303
        assert client.get("/api/me").status_code == 200
        for password in ("", " ", "None"):
            assert there.client().post("/login", data={"name": "Ann", "password": password}).status_code == 401
        assert first_link(there.studio, "") != ""  # or nobody could run the project from another browser


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"name": "Ann", "password": "short"}, "8 to 256 characters"),
        ({"name": "Ann", "password": "x" * 257}, "8 to 256 characters"),
        ({"name": " ", "password": PASSWORD}, "name"),
        ({"name": "TAKEN", "password": PASSWORD}, "choose another name"),
        ({"name": "a\u202eb", "password": PASSWORD}, "characters that can be seen"),
    ],
)
def test_a_link_still_works_after_a_wrong_form(tmp_path, form, words):
    with place(tmp_path) as there:
        there.store.people.add("taken", "annotator")
        link, client = invited(there.studio, "annotator", ""), there.client()
        refused = join(client, link, **form)
        assert refused.status_code == 400 and words in refused.text
        assert join(client, link, name="Ann", password=PASSWORD).status_code == 303


def test_a_link_for_a_name_sets_a_new_password_and_ends_old_sessions(tmp_path):
    with place(tmp_path) as there:
        there.store.people.add("Ann", "manager", there.studio.passwords.hash("the old one"))
        old, link = there.enter("Ann"), invited(there.studio, "annotator:Ann", "")
        page = there.client().get(link).text
        assert 'value="Ann"' in page and "readonly" in page
        assert join(there.client(), link, name="Mallory", password=PASSWORD).status_code == 303
        assert old.get("/api/me").status_code == 401
        signed_in = there.client().post("/login", json={"name": "ann", "password": PASSWORD})
        assert signed_in.json() == {"name": "Ann"}
        assert there.client().post("/login", json={"name": "Ann", "password": "the old one"}).status_code == 401
        assert there.store.people.get("Ann").role == "manager"


def test_wrong_invitations_say_what_to_type(tmp_path):
    with place(tmp_path) as there:
        with pytest.raises(ConfigError, match="Did you mean 'reviewer'"):
            invited(there.studio, "reviwer", "")
        assert there.client().get("/join/forged").status_code == 404


def test_the_form_signs_in_and_leads_to_our_pages_only(tmp_path):
    with place(tmp_path) as there:
        there.store.people.add("Ann", "annotator", there.studio.passwords.hash(PASSWORD))
        form = {"name": " ann ", "password": PASSWORD}
        targets = {"/manage": "/manage", "//evil.example": "/label", "https://evil.example": "/label", "": "/label"}
        for given, reached in targets.items():
            answer = there.client().post("/login", data={**form, "next": given})
            assert (answer.status_code, answer.headers["location"]) == (303, reached)
        page = there.client().get("/login", params={"next": '"><script>'}).text
        assert re.findall(r'name="next" value="([^"]*)"', page) == ["/label"]


def test_a_wrong_name_and_a_wrong_password_look_the_same(tmp_path):
    with place(tmp_path) as there:
        there.store.people.add("Ann", "annotator", there.studio.passwords.hash(PASSWORD))
        there.store.people.add("Out", "annotator", there.studio.passwords.hash(PASSWORD))
        there.store.people.set_active("Out", False)
        attempts = [("Ann", "wrong one"), ("Nobody", PASSWORD), ("Out", PASSWORD)]
        answers = [there.client().post("/login", json={"name": n, "password": p}) for n, p in attempts]
        assert {answer.status_code for answer in answers} == {401}
        assert len({answer.content for answer in answers}) == 1
        form = there.client().post("/login", data={"name": "<b>x", "password": "y"})
        assert form.status_code == 401 and "&lt;b&gt;x" in form.text and "<b>x" not in form.text


def test_a_session_is_new_with_every_sign_in(tmp_path):
    with place(tmp_path) as there:
        there.store.people.add("Ann", "annotator", there.studio.passwords.hash(PASSWORD))
        client, tokens = there.client(), []
        for _ in range(2):
            assert client.post("/login", json={"name": "Ann", "password": PASSWORD}).status_code == 200
            tokens.append(client.cookies[there.studio.cookie])
        old = {"cookie": f"{there.studio.cookie}={tokens[0]}"}
        assert tokens[0] != tokens[1] and there.client().get("/api/me", headers=old).status_code == 401


def test_signing_out_works_from_a_form_and_from_the_page(tmp_path):
    with place(tmp_path) as there:
        ann = there.enter("ann")
        del ann.client.headers["x-csrf-token"]
        assert ann.client.post("/logout", data={"csrf": "forged"}).status_code == 403
        answer = ann.client.post("/logout", data={"csrf": ann.login.csrf})
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert there.studio.login(ann.login.token) is None
        bob = there.enter("bob")
        assert bob.post("/logout").json() == {}


def test_a_page_with_a_button_signs_out_without_scripts(tmp_path):
    with place(tmp_path, name="P") as there:
        ann = there.enter("<ann>")
        page = ann.get("/logout").text
        assert "You are signed in as &lt;ann&gt;." in page and there.studio.login(ann.login.token)
        (csrf,) = re.findall(r'name="csrf" value="(\w+)"', page)
        assert ann.client.post("/logout", data={"csrf": csrf}).headers["location"] == "/login"
        assert ann.get("/logout").headers["location"] == "/login" and not there.studio.login(ann.login.token)


def test_pages_speak_the_language_of_the_browser(tmp_path):
    with place(tmp_path, name="<Farben & Formen>") as there:
        english = there.client().get("/login").text
        chinese = there.client().get("/login", headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.8"}).text
        assert 'lang="en"' in english and "Sign in" in english and "&lt;Farben &amp; Formen&gt;" in english
        assert 'lang="zh"' in chinese and "\u767b\u5f55" in chinese
    assert [language_of(header) for header in ("", "fr", "fr, zh-TW;q=0.5", "EN-us")] == ["en", "en", "zh", "en"]
