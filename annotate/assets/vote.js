// The bar at the foot of the page: what can be said of the item, and what can be done with it.

import { h, icon, press } from "./dom.js";
import { lonelyTie, points, unrated } from "./draft.js";
import { keyName } from "./keys.js";

/** The bar of an item: {element, update(draft), tell(text), warn(text)}. */
export function bar(view, page) {
  const { t } = page;
  const middle = { pair, clips: pair, steps, check }[view.kind](view, page);
  const caption = h("p", { class: "caption", id: "caption" });
  const warning = h("p", { class: "warning", role: "alert" });
  const send = h(
    "button",
    { class: "send", type: "button", onclick: () => page.act("common", "send") },
    h("span", {}, t(page.editing ? "save" : "send")),
    cap(page, "common", "send"),
  );
  const element = h(
    "footer",
    { class: `bar of-${view.kind}`, "aria-label": t("your_answer") },
    h("div", { class: "tools" }, tool(page, "undo"), tool(page, "skip"), tool(page, "flag")),
    h(
      "div",
      { class: "middle" },
      h("div", { class: "captions", "aria-live": "polite" }, caption, warning),
      middle.element,
    ),
    h("div", { class: "go" }, send),
  );
  const update = (draft) => {
    middle.update(draft);
    caption.textContent = middle.caption(draft);
    warning.textContent = "";
    element.classList.toggle("ready", middle.ready(draft));
  };
  const tell = (text) => {
    caption.textContent = text;
    warning.textContent = "";
  };
  const warn = (text) => {
    caption.textContent = "";
    warning.textContent = text;
  };
  return { element, update, tell, warn };
}

/** The key of an action, as a cap. */
export function cap(page, group, action) {
  return h("kbd", { "aria-hidden": "true" }, keyName(page.keys.of(group, action)));
}

function tool(page, action) {
  const name = page.t("action." + action);
  return h(
    "button",
    { type: "button", class: "ghost", id: action, title: name, onclick: () => page.act("common", action) },
    icon(action),
    h("span", {}, name),
    cap(page, "common", action),
  );
}

function choice(page, { group, action, label, name, outcome, strength = "", mark = null, short = null }) {
  const attributes = {
    type: "button",
    class: `choice ${outcome}`,
    "data-choice": true,
    "data-outcome": outcome,
    "data-strength": strength,
    "aria-pressed": group === "steps" ? null : "false",
    "aria-label": name,
  };
  return h(
    "button",
    { ...attributes, onclick: () => page.act(group, action) },
    mark,
    h("span", { class: "word", "data-short": short }, label),
    cap(page, group, action),
  );
}

function pair(view, page) {
  const { t, project } = page;
  const all = points(project);
  const graded = project.strengths.length > 1;
  const scale = all.map(({ outcome, strength }, i) => {
    const action = `point${i + 1}`;
    const label = outcome === "tie" ? t("tie") : graded ? strengthWord(t, strength) : t(`better.${outcome}`);
    return choice(page, {
      group: "pair",
      action,
      label,
      name: sentence(t, outcome, strength),
      outcome,
      strength,
      short: shortName(outcome, i, all.length),
    });
  });
  const rest = [];
  if (lonelyTie(project))
    rest.push(choice(page, { group: "pair", action: "tie", label: t("tie"), name: t("said.tie"), outcome: "tie" }));
  if (project.both_bad)
    rest.push(
      choice(page, {
        group: "pair",
        action: "both_bad",
        label: t("both_bad"),
        name: t("said.both_bad"),
        outcome: "both_bad",
      }),
    );
  const ends = graded
    ? [h("span", { class: "end", "aria-hidden": "true" }, "A"), h("span", { class: "end", "aria-hidden": "true" }, "B")]
    : [];
  const row = h(
    "div",
    { class: `scale of${all.length} ${graded ? "graded" : ""}`, role: "group", "aria-label": t("which_better") },
    ends[0],
    scale,
    ends[1],
  );
  const element = h(
    "div",
    { class: "choices" },
    row,
    rest.length > 0 && h("div", { class: "rest", role: "group", "aria-label": t("neither") }, rest),
  );
  const update = (draft) => {
    for (const button of [...scale, ...rest]) press(button, chosen(button, draft));
  };
  return {
    element,
    update,
    ready: (draft) => Boolean(draft.outcome),
    caption: (draft) => (draft.outcome ? sentence(t, draft.outcome, draft.strength) : t("which_better")),
  };
}

/** How far a point is from the middle, where there is no room for its word. */
function shortName(outcome, i, count) {
  return outcome === "tie" ? "=" : String(Math.ceil(Math.abs(i - (count - 1) / 2)));
}

function chosen(button, { outcome, strength }) {
  const graded = outcome === "a" || outcome === "b";
  return button.dataset.outcome === outcome && (!graded || button.dataset.strength === strength);
}

/** A choice as a sentence. */
export function sentence(t, outcome, strength = "") {
  const graded = strength && (outcome === "a" || outcome === "b");
  if (!graded) return t("said." + outcome);
  return t.has(`said.${outcome}.${strength}`)
    ? t(`said.${outcome}.${strength}`)
    : t(`said.${outcome}.graded`, { strength });
}

function strengthWord(t, strength) {
  return t.has("strength." + strength) ? t("strength." + strength) : strength;
}

function check(view, page) {
  const { t } = page;
  const marks = { right: "check", wrong: "cross", unsure: "question" };
  const buttons = Object.entries(marks).map(([outcome, mark]) =>
    choice(page, {
      group: "check",
      action: outcome,
      label: t(outcome),
      name: t("said." + outcome),
      outcome,
      mark: icon(mark),
    }),
  );
  const element = h(
    "div",
    { class: "choices" },
    h("div", { class: "scale of3", role: "group", "aria-label": view.question || t("is_it_right") }, buttons),
  );
  const update = (draft) => buttons.forEach((button) => press(button, button.dataset.outcome === draft.outcome));
  return {
    element,
    update,
    ready: (draft) => Boolean(draft.outcome),
    caption: (draft) => (draft.outcome ? t("said." + draft.outcome) : view.question || t("is_it_right")),
  };
}

function steps(view, page) {
  const { t, project } = page;
  const meter = h(
    "div",
    { class: "meter", "aria-hidden": "true" },
    view.steps.map(() => h("i")),
  );
  const left = (draft) => unrated(draft, project.step_mode).length;
  const rates = { good: "check", neutral: "minus", bad: "cross" };
  const buttons = Object.entries(rates).map(([action, mark]) =>
    choice(page, {
      group: "steps",
      action,
      label: t(action),
      name: t("action." + action),
      outcome: action,
      mark: icon(mark),
    }),
  );
  const row = h("div", { class: "scale of3", role: "group", "aria-label": t("current_step") }, buttons);
  const caption = (draft) => {
    const bad = draft.ratings.indexOf(-1);
    if (project.step_mode === "first_error" && bad >= 0 && !left(draft)) return t("first_error_at", { step: bad + 1 });
    return left(draft) ? t("steps_left", { n: left(draft) }) : t("steps_rated");
  };
  const update = (draft) => {
    const end = project.step_mode === "first_error" ? draft.ratings.indexOf(-1) : -1;
    [...meter.children].forEach((mark, i) => {
      const rating =
        { 1: "good", 0: "neutral", "-1": "bad" }[draft.ratings[i]] ?? (draft.unsure.includes(i) ? "unsure" : "");
      mark.className = end >= 0 && i > end ? "after" : rating;
    });
  };
  return { element: h("div", { class: "choices" }, meter, row), update, ready: (draft) => !left(draft), caption };
}
