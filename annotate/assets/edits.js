// Changing what has been said: undo, edit, and labels that the server refused.

import * as dialogs from "./dialogs.js";
import { h } from "./dom.js";
import { fromLabel } from "./draft.js";
import { sentence } from "./vote.js";

const RECENT = 20; // labels of this tab that can be taken back without asking the server

export class Edits {
  current = null; // {view, label, version}: the label that is being changed
  #recent = [];

  constructor(page) {
    this.page = page;
    addEventListener("hashchange", () => this.route());
  }

  /** Opens the last label; those of this tab at once, older ones from the server. */
  async undo() {
    const { page } = this;
    const place = this.#recent.findIndex(({ view }) => view === this.current?.view);
    const last = place < 0 ? this.#recent.at(-1) : this.#recent[place - 1];
    if (last) return this.open(last.view.assignment);
    if (this.current) return undefined;
    try {
      const label = (await page.api.get("/api/mine")).find(({ editable }) => editable);
      if (label) return this.open(label.assignment);
      page.say(page.t("none_yet"));
    } catch (error) {
      page.failed(error);
    }
  }

  open(assignment) {
    location.hash = "edit-" + assignment;
  }

  /** Shows the label that the address names; without one, the current item. */
  async route() {
    const { page } = this;
    const assignment = /^#edit-(\w+)$/.exec(location.hash)?.[1];
    page.keep();
    if (!assignment) return this.#leave();
    try {
      this.current = this.#recent.find(({ view }) => view.assignment === assignment) ?? (await this.#fetch(assignment));
      page.advance();
    } catch (error) {
      this.close();
      page.failed(error);
    }
  }

  /** Back to the current item. */
  close() {
    history.replaceState(null, "", location.pathname + location.search);
    this.#leave();
  }

  #leave() {
    if (!this.current) return;
    this.current = null;
    this.page.advance();
  }

  async #fetch(assignment) {
    const view = await this.page.api.get("/api/mine/" + assignment);
    return { view, label: view.label ?? {}, version: view.version };
  }

  /** A label that has just been given can be taken back. */
  remember(view, label) {
    const others = this.#recent.filter((entry) => entry.view.assignment !== view.assignment);
    this.#recent = [...others, { view, label, version: label.base_version + 1 }].slice(-RECENT);
  }

  /** The server has given a label its version. */
  acknowledge(id, version) {
    const entry = this.#recent.find(({ label }) => label.id === id);
    if (entry) entry.version = version;
  }

  /** What the server refused, one after the other: its reason, and the label to look at again or to let go. */
  review() {
    const { page } = this;
    const { t, outbox } = page;
    const entry = outbox.refused[0];
    if (!entry) return;
    const { body, error, path } = entry;
    const drop = () => {
      dialog.close();
      outbox.forget(body.id);
      this.review();
    };
    const again = () => {
      dialog.close();
      this.#reopen(entry);
    };
    const said = path === "/api/labels" ? sentence(t, body.outcome, body.strength) : body.reason;
    const written = [body.rationale, body.answer?.text, body.note].filter(Boolean);
    const facts = [
      h("p", {}, t(error.code === "conflict" ? "refused_conflict" : "refused_hint")),
      h("blockquote", { dir: "auto" }, error.message),
      h("p", {}, h("strong", {}, said)),
      written.map((text) => h("p", { class: "kept", dir: "auto" }, text)),
    ];
    const actions = [
      h("button", { type: "button", class: "soft", onclick: drop }, t("let_go")),
      error.code === "conflict" && h("button", { type: "button", class: "send", onclick: again }, t("look_at_it")),
    ];
    const all = [facts, h("div", { class: "dialog-actions" }, actions)];
    const dialog = dialogs.open(page, { title: t("refused"), body: all });
  }

  /** A label that met a newer one: shows the item as it was said here, to be saved over the newer version or not. */
  async #reopen({ body }) {
    const { page } = this;
    try {
      const { view, version } = await this.#fetch(body.assignment);
      this.#recent = this.#recent.filter((entry) => entry.view.assignment !== view.assignment);
      page.drafts.keep(view, fromLabel(view, body), version);
      page.outbox.forget(body.id);
      this.open(view.assignment);
    } catch (error) {
      page.failed(error);
    }
  }
}
