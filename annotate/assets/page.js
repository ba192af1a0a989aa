// The label page: what is shown, what people say of it, and its way to the server.

import { Box } from "./box.js";
import { check } from "./check.js";
import { Clock } from "./clock.js";
import * as dialogs from "./dialogs.js";
import { h, uuid } from "./dom.js";
import { blank, fromLabel, isBlank, missing, points, toBody, toSkip } from "./draft.js";
import { Drafts } from "./drafts.js";
import { Edits } from "./edits.js";
import { ending, head } from "./head.js";
import { load, pick } from "./i18n.js";
import { Keys } from "./keys.js";
import { login } from "./login.js";
import { Outbox } from "./outbox.js";
import { pair } from "./pair.js";
import { Queue } from "./queue.js";
import { steps } from "./steps.js";
import { bar, sentence } from "./vote.js";

const DRAW = { pair, clips: pair, steps, check };
const POLL = 8_000; // milliseconds between two looks for new items where there are none
const ABSENT = 10 * 60_000; // milliseconds without a hand on the machine after which items are not kept any longer
const LIKES = { language: "", theme: "auto", quick: false, together: true, raw: false };

/** The page of one person, from logging in until leaving. */
export class Page {
  draft = null; // what has been said of the item that is shown
  error = null; // why no items could be fetched
  #shown = null; // its drawing
  #asking = null; // the window that asks to log in

  constructor(root, api, me) {
    Object.assign(this, { root, api, me, project: me.project, counts: me.progress });
    this.shell = h("div", { class: "shell" });
    this.windows = h("div");
    this.live = h("p", { class: "visually-hidden", "aria-live": "polite" });
    root.replaceChildren(this.shell, this.live, this.windows);
    this.box = new Box(me.project.id, me.name);
    this.likes = { ...LIKES, ...this.box.get("likes") };
    this.drafts = new Drafts(this.box);
    this.clock = new Clock();
    this.keys = new Keys(this.box, (group, action) => this.act(group, action));
    this.outbox = new Outbox(api, this.box, {
      changed: () => this.#status(),
      saved: (body, answer) => this.#saved(body, answer),
      refused: (_, error) => error.code === "invalid" && this.#refresh(),
      login: () => this.login(),
    });
    const busy = () => [...this.outbox.waiting, ...this.outbox.refused].map((entry) => entry.body.assignment);
    this.queue = new Queue(api, this.box, busy, {
      progress: (counts) => Object.assign(this, { counts, error: null }),
      failed: (error) => this.failed(error),
    });
    this.edits = new Edits(this);
  }

  get editing() {
    return this.edits.current;
  }

  get view() {
    return this.editing?.view ?? this.queue.current;
  }

  get #version() {
    return this.editing?.version ?? 0;
  }

  async open() {
    this.likes.language = pick(this.likes.language);
    this.t = await load(this.likes.language);
    this.redraw();
    this.#listen();
    await this.queue.fill();
    this.outbox.flush();
    this.show();
    this.edits.route();
  }

  #listen() {
    addEventListener("pagehide", () => this.keep());
    addEventListener("beforeunload", (event) => this.box.fragile && event.preventDefault());
    document.addEventListener("visibilitychange", () => (document.hidden ? this.keep() : this.#renew()));
    this.shell.addEventListener("click", (event) => this.#click(event), true);
    this.box.watch((name, value) => this.#elsewhere(name, value));
    setInterval(() => this.view || document.hidden || this.more(), POLL);
    setInterval(() => this.clock.idle < ABSENT && this.#renew(), 60_000);
  }

  #click(event) {
    // The second click of two quick ones is about the item that has just gone, and not about the next.
    if (event.detail > 1 && event.target.closest(".bar")) event.stopPropagation();
    // After a click the keys are the page's again: Enter sends, and does not press the same button once more.
    if (event.detail) event.target.closest("button")?.blur();
  }

  // ---- drawing

  /** Draws everything anew, in the language, the colours and with the keys of now. */
  redraw() {
    this.keep();
    const root = document.documentElement;
    root.lang = this.t.language;
    root.dataset.theme = this.likes.theme;
    document.title = this.project.name;
    this.head = head(this);
    this.main = h("main", { id: "item", tabindex: -1 });
    this.foot = h("div", { class: "foot" });
    this.shell.replaceChildren(this.head.element, this.main, this.foot);
    this.show();
  }

  /** Draws the item, with what has been said of it so far. */
  show() {
    const { view, main, foot } = this;
    this.#shown?.stop();
    this.#shown = null;
    main.dataset.assignment = view?.assignment ?? "";
    main.dataset.kind = view?.kind ?? "";
    this.#status();
    if (!view) {
      this.draft = null;
      foot.replaceChildren();
      return;
    }
    const start = this.editing ? fromLabel(view, this.editing.label) : blank(view);
    this.draft = this.drafts.load(view, start, this.#version);
    this.keys.kind = view.kind;
    this.clock.start(this.draft.active_ms);
    this.bar = bar(view, this);
    this.#shown = DRAW[view.kind](view, this);
    const title = h("h1", { class: "visually-hidden" }, this.t("kind." + view.kind));
    main.replaceChildren(title, this.editing ? this.#banner() : "", this.#shown.element);
    foot.replaceChildren(this.bar.element);
    this.#scrollers();
    this.#update();
  }

  /** Answers that scroll by themselves can be reached and scrolled by keyboard. */
  #scrollers() {
    const separate = !this.likes.together;
    this.root.classList.toggle("separate", separate);
    for (const answer of this.main.querySelectorAll(".scroller")) answer.tabIndex = separate ? 0 : -1;
  }

  #empty() {
    const { queue, outbox, error } = this;
    const sending = outbox.waiting.length > 0 && !outbox.offline;
    if (sending || (!queue.done && !error)) return h("p", { class: "boot", role: "status" }, this.t("loading"));
    const offline = outbox.offline || error?.status === 0;
    return ending(this, { offline, waiting: outbox.waiting.length, failed: error?.message });
  }

  #banner() {
    const back = h(
      "button",
      { type: "button", class: "soft", onclick: () => this.edits.close() },
      this.t("back_to_queue"),
    );
    return h("div", { class: "banner", role: "status" }, h("span", {}, this.t("editing")), back);
  }

  #update() {
    this.#shown.update(this.draft);
    this.bar.update(this.draft);
  }

  #status() {
    if (!this.head) return;
    const { outbox, box } = this;
    const { waiting, refused, offline } = outbox;
    const labels = waiting.filter(({ path, body }) => path === "/api/labels" && !body.base_version);
    this.head.progress(this.counts, labels.length);
    this.head.saved({ waiting: waiting.length, refused: refused.length, offline, fragile: box.fragile });
    if (!this.view) this.#rest();
  }

  /** What is shown where there is no item; drawn again only where it says something else. */
  #rest() {
    const rest = this.#empty();
    if (rest.outerHTML !== this.main.innerHTML) this.main.replaceChildren(rest);
  }

  /** Shows the item from its top; the keys are the page's. */
  advance() {
    this.show();
    scrollTo(0, 0);
    this.main.focus({ preventScroll: true });
  }

  /** Tells something in passing. */
  say(text) {
    if (this.view) this.bar.tell(text);
    else this.live.textContent = text;
  }

  /** What a point of the scale says; "" where the scale has no such point. */
  pointName(i) {
    const point = points(this.project)[i];
    return point ? sentence(this.t, point.outcome, point.strength) : "";
  }

  // ---- what a person does

  /** Does what a key or a button stands for; false where there is nothing to do. */
  act(group, action) {
    if (group === "pair" && action === "together") return this.like({ together: !this.likes.together });
    if (group !== "common") return Boolean(this.#shown?.act(group, action));
    const always = {
      undo: () => this.edits.undo(),
      mine: () => dialogs.mine(this),
      guidelines: () => dialogs.guidelines(this),
      help: () => dialogs.help(this),
      raw: () => this.like({ raw: !this.likes.raw }),
      leave: () => this.editing && this.edits.close(),
    };
    const ofItems = {
      send: () => this.send(),
      skip: () => this.#skip(),
      flag: () => this.#flag(),
      note: () => this.#shown.act("common", "note"),
    };
    const does = always[action] ?? (this.#shown && ofItems[action]);
    does?.();
    return Boolean(does);
  }

  /** Chooses an outcome; it is sent at once where the person likes that and nothing is missing. */
  choose(said) {
    this.change(said);
    if (this.likes.quick && !this.editing && !missing(this.view, this.draft, this.project)) this.send();
    return true;
  }

  change(said) {
    this.draft = { ...this.draft, ...said };
    this.keep();
    this.#update();
  }

  /** Keeps the draft. */
  keep() {
    if (!this.draft || !this.view) return;
    this.draft.active_ms = this.clock.ms;
    this.drafts.keep(this.view, this.draft, this.#version);
  }

  send() {
    const { view, project } = this;
    const lacks = missing(view, this.draft, project);
    if (lacks) {
      this.bar.warn(this.t("missing." + lacks));
      if (lacks === "rationale") this.#shown.act("common", "note");
      return;
    }
    this.draft.active_ms = this.clock.ms;
    this.#submit(toBody(view, this.draft, project));
  }

  #submit(said) {
    const { view, editing } = this;
    const body = { id: uuid(), assignment: view.assignment, ...said, base_version: this.#version };
    this.draft = null;
    this.drafts.remove(view.assignment);
    this.outbox.keep("/api/labels", body);
    this.edits.remember(view, body);
    // The next item first: nothing of it waits for the network.
    if (editing) this.edits.close();
    else {
      this.queue.shift();
      this.advance();
    }
    this.live.textContent = this.t("sent");
    this.outbox.flush();
    this.more();
  }

  #skip() {
    const { t, view, project } = this;
    const then = (reason, note) => {
      if (this.view === view) this.#submit(toSkip(view, { active_ms: this.clock.ms }, reason, note));
    };
    if (!project.skip_reasons.length) return then("", "");
    const noted = project.rationale !== "off";
    dialogs.reason(this, { title: t("skip_why"), reasons: project.skip_reasons, noted, then, go: t("action.skip") });
  }

  #flag() {
    const { t, view, project } = this;
    const then = (reason, note) => {
      this.outbox.keep("/api/flags", { id: uuid(), assignment: view.assignment, reason, note });
      this.outbox.flush();
      this.say(t("flagged"));
    };
    dialogs.reason(this, { title: t("flag_why"), reasons: project.flag_reasons, then, go: t("action.flag") });
  }

  /** Changes how the page behaves; kept for this person in this browser. */
  like(change) {
    this.likes = { ...this.likes, ...change };
    this.box.set("likes", this.likes);
    if ("language" in change) this.#speak();
    document.documentElement.dataset.theme = this.likes.theme;
    this.#scrollers();
    if ("raw" in change) this.#shown?.raw(this.likes.raw);
    return true;
  }

  async #speak() {
    this.t = await load(this.likes.language);
    this.windows.replaceChildren();
    this.redraw();
  }

  // ---- the server, and other tabs

  /** Looks for more items, and shows one where there was none. */
  async more() {
    await this.queue.fill();
    if (!this.draft) this.show();
    this.#status();
  }

  #saved(body, { version, progress }) {
    if (progress) this.counts = progress;
    if (version) this.edits.acknowledge(body.id, version);
    if (!this.view) this.more();
  }

  /** The project asks otherwise than it did when the page was loaded. */
  async #refresh() {
    try {
      const { project, progress } = await this.api.get("/api/me");
      Object.assign(this, { project, counts: progress });
      this.redraw();
    } catch (error) {
      this.failed(error);
    }
  }

  async #renew() {
    const { current } = this.queue;
    await this.queue.renew(current && this.draft && !isBlank(current, this.draft) ? current.assignment : "");
    if (this.queue.current !== current && !this.editing) this.show();
    this.more();
  }

  failed(error) {
    if (error.needsLogin) return this.login();
    this.error = error;
    if (!this.view) return this.show();
    if (error.status) this.bar.warn(this.t("failed", { message: error.message }));
  }

  /** Another tab has labelled something, or changed the keys. */
  #elsewhere(name, value) {
    if (name === "keys") this.keys.own = value ?? {};
    if (name.startsWith("out.") || name.startsWith("refused.")) this.#status();
    const assignment = name.startsWith("out.") && value?.path === "/api/labels" ? value.body.assignment : "";
    const current = this.queue.current;
    if (!assignment || (assignment === current?.assignment && this.draft && !isBlank(current, this.draft))) return;
    this.queue.drop(assignment);
    if (assignment === current?.assignment && !this.editing) this.show();
    this.more();
  }

  /** Asks to log in again, in one window however many requests were refused; then goes on. */
  login() {
    this.#asking ??= login(this).then((back) => {
      this.#asking = null;
      if (!back) return; // closed: it is asked for again with the next request
      this.outbox.flush();
      this.more();
    });
    return this.#asking;
  }

  async leave() {
    const waiting = this.outbox.waiting.length;
    if (waiting && !confirm(this.t("leave_waiting", { n: waiting }))) return;
    const given = this.queue.items.map(({ assignment }) => this.api.post("/api/release", { assignment }));
    await Promise.allSettled(given);
    await this.api.post("/logout", {}).catch(() => {});
    location.assign("/login");
  }
}
