// Two answers side by side, or two clips.

import { clips } from "./clips.js";
import { h } from "./dom.js";
import { lonelyTie, points } from "./draft.js";
import { say } from "./say.js";
import { chat, text } from "./text.js";

/** The page of a comparison: {element, update(draft), raw(plain), act(group, action), stop()}. */
export function pair(view, page) {
  const { t } = page;
  const prompt = chat(view.prompt, page.likes.raw, t);
  const shown = view.kind === "clips" ? clips(view, page) : answers(view, page);
  const more = say(view, page);
  const columns = h(
    "div",
    { class: "columns" },
    ["a", "b"].map((side) =>
      column(side, shown[side], t(view.kind === "clips" ? "clip_name" : "answer", { name: side.toUpperCase() })),
    ),
  );
  const element = h("div", { class: "item" }, prompt, shown.before, columns, more.element);
  const update = (draft) => {
    for (const article of columns.children) article.classList.toggle("chosen", article.dataset.side === draft.outcome);
    more.update(draft);
  };
  const raw = (plain) => {
    prompt.draw(plain);
    shown.raw(plain);
  };
  const act = (group, action) =>
    group === "pair" ? choose(action, page) || more.act(action) : shown.act(action) || more.act(action);
  return { element, update, raw, act, stop: shown.stop };
}

function column(side, body, title) {
  const head = h(
    "h2",
    { class: "side-head", id: "side-" + side },
    h("span", { class: "badge", "aria-hidden": "true" }, side.toUpperCase()),
    h("span", {}, title),
  );
  return h(
    "article",
    { class: "answer", "data-side": side, "aria-labelledby": "side-" + side },
    head,
    h("div", { class: "scroller", "data-side": side }, body),
  );
}

function answers(view, page) {
  const [a, b] = [view.a, view.b].map((content) => text(content, page.likes.raw, page.t));
  const raw = (plain) => [a, b].forEach((body) => body.draw(plain));
  return { a, b, before: null, raw, act: () => false, stop: () => {} };
}

function choose(action, page) {
  const { project } = page;
  const number = /^point(\d)$/.exec(action);
  if (number) {
    const point = points(project)[Number(number[1]) - 1];
    return Boolean(point) && page.choose({ outcome: point.outcome, strength: point.strength });
  }
  const allowed = { tie: lonelyTie(project) || project.scale % 2 === 1, both_bad: project.both_bad };
  return Boolean(allowed[action]) && page.choose({ outcome: action, strength: "" });
}
