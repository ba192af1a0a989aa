// A solution in steps, each of which is rated: good, neutral or bad.

import { knownAnswer } from "./check.js";
import { h, icon, press } from "./dom.js";
import { firstError } from "./draft.js";
import { reach, say } from "./say.js";
import { chat, text } from "./text.js";

const RATINGS = { good: [1, "check"], neutral: [0, "minus"], bad: [-1, "cross"] };

/** The page of a solution: {element, update(draft), raw(plain), act(group, action), stop()}. */
export function steps(view, page) {
  const { t } = page;
  const prompt = chat(view.prompt, page.likes.raw, t);
  const known = knownAnswer(view.answer, page);
  const more = say(view, page);
  const list = new Steps(view, page);
  const element = h("div", { class: "item narrow" }, prompt, known?.element, list.element, more.element);
  const raw = (plain) => [prompt, ...(known ? [known] : []), ...list.texts].forEach((body) => body.draw(plain));
  const update = (draft) => {
    list.update(draft);
    more.update(draft);
  };
  const act = (group, action) => (group === "steps" ? list.act(action) : more.act(action));
  return { element, update, raw, act, stop: () => {} };
}

class Steps {
  constructor(view, page) {
    Object.assign(this, { view, page, at: 0 });
    this.rows = view.steps.map((step, i) => this.#row(step, i));
    this.texts = this.rows.map((row) => row.body);
    this.only = page.project.step_mode === "first_error";
    this.element = h(
      "ol",
      { class: "step-list", "aria-label": page.t("steps") },
      this.rows.map((row) => row.element),
    );
    const open = page.draft.ratings.findIndex((rating, i) => rating === null && !page.draft.unsure.includes(i));
    this.#go(Math.max(open, 0), false);
  }

  act(action) {
    const moves = { previous: -1, next: 1 };
    if (action in moves) return this.#go(this.at + moves[action]);
    if (action in RATINGS) return this.#rate(this.at, RATINGS[action][0], true);
    if (action === "unsure") return this.#unsure(this.at);
    return action === "write" && this.#write(this.at);
  }

  update(draft) {
    const error = this.only ? firstError(draft) : -1;
    this.rows.forEach((row, i) => {
      for (const [name, [value]] of Object.entries(RATINGS)) press(row[name], draft.ratings[i] === value);
      press(row.unsure, draft.unsure.includes(i));
      const written = draft.alternatives[i];
      if (row.field.value !== (written ?? "")) row.field.value = written ?? "";
      row.pen.hidden = written === undefined;
      press(row.write, written !== undefined);
      const after = error >= 0 && i > error;
      row.element.classList.toggle("after", after);
      row.element.dataset.rating = draft.ratings[i] ?? "";
      for (const control of row.element.querySelectorAll("button, textarea")) control.disabled = after;
    });
  }

  #row(step, i) {
    const { t, likes } = this.page;
    const body = text(step, likes.raw, t);
    const row = { body };
    for (const [name, [value, mark]] of Object.entries(RATINGS)) {
      const attributes = {
        type: "button",
        class: `rate ${name}`,
        "data-choice": true,
        "aria-pressed": "false",
        "aria-label": t("rate." + name, { step: i + 1 }),
        title: t(name),
      };
      row[name] = h(
        "button",
        { ...attributes, onclick: () => this.#rate(i, value, false) },
        icon(mark),
        h("span", {}, t(name)),
      );
    }
    row.unsure = h(
      "button",
      {
        type: "button",
        class: "soft unsure",
        "data-choice": true,
        "aria-pressed": "false",
        "aria-label": t("rate.unsure", { step: i + 1 }),
        title: t("unsure"),
        onclick: () => this.#unsure(i),
      },
      icon("question"),
      h("span", {}, t("unsure")),
    );
    row.write = h(
      "button",
      {
        type: "button",
        class: "soft write",
        "aria-pressed": "false",
        "aria-label": t("rate.write", { step: i + 1 }),
        title: t("write_step"),
        onclick: () => this.#write(i),
      },
      icon("pencil"),
      h("span", {}, t("write_step")),
    );
    row.field = h("textarea", {
      rows: 2,
      dir: "auto",
      "aria-label": t("alternative", { step: i + 1 }),
      placeholder: t("alternative_hint"),
      oninput: () => this.#alternative(i, row.field.value),
    });
    row.pen = h("div", { class: "pen", hidden: true }, row.field);
    const rates = h(
      "div",
      { class: "rates", role: "group", "aria-label": t("step", { step: i + 1 }) },
      row.good,
      row.neutral,
      row.bad,
    );
    const tools = h("div", { class: "step-tools" }, row.unsure, row.write);
    row.element = h(
      "li",
      { class: "step", onpointerdown: () => this.#go(i, false), onfocusin: () => this.#go(i, false) },
      h("span", { class: "number", "aria-hidden": "true" }, i + 1),
      body,
      h("div", { class: "controls" }, tools, rates),
      row.pen,
    );
    return row;
  }

  /** Makes a step the one that the keys rate. */
  #go(i, scroll = true) {
    if (!this.rows[i] || this.rows[i].element.classList.contains("after")) return false;
    this.at = i;
    this.rows.forEach((row, place) => {
      row.element.classList.toggle("current", place === i);
      if (place === i) row.element.setAttribute("aria-current", "step");
      else row.element.removeAttribute("aria-current");
    });
    if (scroll) this.rows[i].element.scrollIntoView({ block: "nearest" });
    return true;
  }

  #rate(i, value, advance) {
    const { draft } = this.page;
    const ratings = draft.ratings.map((rating, place) => (place === i ? value : rating));
    this.page.change({ ratings });
    if (advance && !(this.only && value === -1)) this.#go(i + 1);
    return true;
  }

  #unsure(i) {
    const { unsure } = this.page.draft;
    this.page.change({
      unsure: unsure.includes(i)
        ? unsure.filter((place) => place !== i)
        : [...unsure, i].sort((one, other) => one - other),
    });
    return true;
  }

  #write(i) {
    const { alternatives } = this.page.draft;
    if (alternatives[i] === "") {
      const { [i]: _, ...others } = alternatives;
      this.page.change({ alternatives: others });
      return true;
    }
    this.#alternative(i, alternatives[i] ?? "");
    return reach(this.rows[i].field);
  }

  #alternative(i, written) {
    this.page.change({ alternatives: { ...this.page.draft.alternatives, [i]: written } });
  }
}
