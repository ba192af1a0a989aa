// What can be said besides the choice: ratings of criteria, a better answer, why.

import { h } from "./dom.js";
import { cap } from "./vote.js";

/** The cards below an item: {element, update(draft), act(action)}. */
export function say(view, page) {
  const { t, project } = page;
  const compares = view.kind === "pair" || view.kind === "clips";
  const parts = [];
  if (compares && project.criteria.length) parts.push(criteria(page));
  if (project.rationale !== "off") parts.push(rationale(page));
  if (view.kind === "pair" && project.better_answer) parts.push(better(view, page));
  const element = h(
    "section",
    { class: "say", "aria-label": t("say_more") },
    parts.map((part) => part.element),
  );
  return {
    element,
    update: (draft) => parts.forEach((part) => part.update(draft)),
    act: (action) => parts.some((part) => part.act(action)),
  };
}

function rationale(page) {
  const { t, project } = page;
  const field = h("textarea", {
    id: "rationale",
    rows: 3,
    dir: "auto",
    placeholder: t("why_hint"),
    maxlength: 20000,
    oninput: () => page.change({ rationale: field.value }),
  });
  const need = t(project.rationale === "required" ? "required" : "optional");
  const element = h(
    "div",
    { class: "card" },
    h(
      "label",
      { for: "rationale" },
      h("strong", {}, t("why")),
      h("span", { class: "need" }, need),
      cap(page, "common", "note"),
    ),
    field,
  );
  return {
    element,
    update: (draft) => sync(field, draft.rationale),
    act: (action) => action === "note" && reach(field),
  };
}

/** Puts a text into a field; where it is there already nothing moves the caret. */
function sync(field, value) {
  if (field.value !== value) field.value = value;
}

/** Shows a field and types in it. */
export function reach(field) {
  field.scrollIntoView({ block: "center" });
  field.focus({ preventScroll: true });
  return true;
}

function criteria(page) {
  const { t, project } = page;
  const rows = project.criteria.map((criterion, i) => criterionRow(criterion, i, page));
  const head = h(
    "div",
    { class: "heading" },
    h("strong", {}, t("criteria")),
    h("span", { class: "need" }, t("optional")),
    cap(page, "pair", "criteria"),
  );
  const element = h("div", { class: "card criteria" }, head, rows);
  const update = ({ criteria: given }) => {
    for (const input of element.querySelectorAll("input"))
      input.checked = given[input.dataset.criterion] === Number(input.value);
  };
  const act = (action) =>
    action === "criteria" && reach(element.querySelector("input:checked") ?? element.querySelector("input"));
  return { element, update, act };
}

function criterionRow({ name, points }, place, page) {
  const { t } = page;
  const values = Array.from({ length: 2 * points + 1 }, (_, i) => i - points);
  const spell = (value) =>
    value ? t(value < 0 ? "criterion.a" : "criterion.b", { by: Math.abs(value) }) : t("criterion.same");
  const rate = (value) => page.change({ criteria: { ...page.draft.criteria, [name]: value } });
  const clear = (value) => {
    const { [name]: given, ...others } = page.draft.criteria;
    if (given === value) page.change({ criteria: others }); // pressing what is chosen takes it back
  };
  const options = values.map((value) => {
    const input = h("input", {
      type: "radio",
      name: `criterion${place}`,
      value,
      "data-criterion": name,
      "aria-label": spell(value),
      onclick: () => clear(value),
      onchange: () => rate(value),
    });
    return h(
      "label",
      { class: "dot", title: spell(value) },
      input,
      h("span", { "aria-hidden": "true" }, value ? Math.abs(value) : "="),
    );
  });
  const digits = (event) => {
    const value = values[Number(event.key) - 1];
    if (value === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    rate(value);
    options[Number(event.key) - 1].querySelector("input").focus();
  };
  const scale = h(
    "div",
    { class: "dots" },
    h("span", { class: "side" }, "A"),
    options,
    h("span", { class: "side" }, "B"),
  );
  const title = h("span", { id: `criterion${place}`, dir: "auto" }, name);
  return h(
    "div",
    { class: "criterion", role: "radiogroup", "aria-labelledby": `criterion${place}`, onkeydown: digits },
    title,
    scale,
  );
}

function better(view, page) {
  const { t } = page;
  const field = h("textarea", {
    id: "answer",
    rows: 8,
    dir: "auto",
    "aria-label": t("better_answer"),
    placeholder: t("better_hint"),
    maxlength: 200000,
    oninput: () => page.change({ answer: { ...page.draft.answer, text: field.value } }),
  });
  const begin = (from) => {
    page.change({ answer: { text: from ? view[from].raw : "", from } });
    reach(field);
  };
  const untouched = () =>
    !page.draft.answer.text.trim() || page.draft.answer.text === view[page.draft.answer.from]?.raw;
  const starts = [
    ["a", t("begin.a")],
    ["b", t("begin.b")],
    ["", t("begin.blank")],
  ].map(([from, label]) =>
    h(
      "button",
      { type: "button", class: "soft", onclick: () => (untouched() || confirm(t("replace_text"))) && begin(from) },
      label,
    ),
  );
  const details = h(
    "details",
    { class: "card better" },
    h(
      "summary",
      {},
      h("strong", {}, t("better_answer")),
      h("span", { class: "need" }, t("optional")),
      cap(page, "pair", "answer"),
    ),
    h("div", { class: "starts" }, starts),
    field,
  );
  const update = ({ answer }) => {
    sync(field, answer.text);
    if (answer.text) details.open = true;
  };
  const act = (action) => {
    if (action !== "answer") return false;
    details.open = true;
    return reach(field);
  };
  return { element: details, update, act };
}
