// Windows over the page. All are <dialog> elements: the browser keeps the focus in them and closes them on Escape.

import { h, icon } from "./dom.js";
import { ACTIONS, GROUPS, keyName, normal } from "./keys.js";
import { sentence } from "./vote.js";

/** Opens a window; what is returned closes it. `closed` is called when it has gone, for whatever reason. */
export function open(page, { title, body, kind = "", closed = () => {} }) {
  const close = h(
    "button",
    { type: "button", class: "ghost close", "aria-label": page.t("close"), onclick: () => dialog.close() },
    icon("cross"),
  );
  const dialog = h(
    "dialog",
    { class: kind, "aria-labelledby": "dialog-title" },
    h("header", {}, h("h2", { id: "dialog-title", tabindex: -1, autofocus: true }, title), close),
    h("div", { class: "dialog-body" }, body),
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault(); // the browser closes it a moment later, and a quick Enter would still be in it
    dialog.close();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  page.windows.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Guidelines of the project, at the side. */
export function guidelines(page) {
  const body = h("div", { class: "text", dir: "auto" });
  body.innerHTML = page.project.guidelines || "";
  if (!page.project.guidelines) body.textContent = page.t("no_guidelines");
  open(page, { title: page.t("guidelines"), body, kind: "drawer" });
}

/** Asks for a reason: calls `then(reason, note)`. Reasons are chosen by digits; the note is free. */
export function reason(page, { title, reasons, noted = true, then, go }) {
  const { t } = page;
  const choices = reasons.map((text, i) => {
    const input = h("input", { type: "radio", name: "reason", value: text, required: true });
    return h(
      "label",
      { class: "reason" },
      input,
      h("span", { dir: "auto" }, t.has("reason." + text) ? t("reason." + text) : text),
      h("kbd", { "aria-hidden": "true" }, i + 1),
    );
  });
  const note = h("textarea", { rows: 2, dir: "auto", id: "reason-note", maxlength: 20000 });
  const warning = h("p", { class: "warning", role: "alert" });
  const form = h(
    "form",
    { novalidate: true, onsubmit: (event) => (event.preventDefault(), done()) },
    h("fieldset", { class: "reasons" }, h("legend", { class: "visually-hidden" }, title), choices),
    noted && [
      h("label", { for: "reason-note" }, h("strong", {}, t("note")), h("span", { class: "need" }, t("optional"))),
      note,
    ],
    warning,
    h(
      "div",
      { class: "dialog-actions" },
      h("button", { type: "button", class: "soft", onclick: () => dialog.close() }, t("cancel")),
      h("button", { class: "send" }, go),
    ),
  );
  const done = () => {
    const chosen = form.querySelector("input:checked")?.value ?? "";
    if (reasons.length && !chosen) return (warning.textContent = t("choose_reason"));
    dialog.close();
    then(chosen, note.value);
  };
  form.addEventListener("keydown", (event) => {
    if (event.target === note && event.key !== "Enter") return;
    if (event.key === "Enter" && event.target === note && !(event.ctrlKey || event.metaKey)) return;
    const input = choices[Number(event.key) - 1]?.querySelector("input");
    if (input) input.click();
    else if (event.key === "Enter" && event.target.type !== "button") done();
    else return;
    event.preventDefault();
  });
  const dialog = open(page, { title, body: form });
  choices[0]?.querySelector("input").focus();
  if (!choices.length) note.focus();
  dialog.addEventListener(
    "keydown",
    (event) => form.contains(event.target) || choices[Number(event.key) - 1]?.querySelector("input").click(),
  );
}

/** All actions and their keys; each key is a button that takes a new one. */
export function help(page) {
  const { t } = page;
  const groups = GROUPS[page.keys.kind];
  const status = h("p", { class: "warning", role: "status" });
  const used = (group, action) => Boolean(actionName(page, group, action));
  const tables = groups.map((group) => {
    const rows = Object.keys(ACTIONS[group])
      .filter((action) => used(group, action))
      .map((action) => keyRow(page, group, action, status));
    return h("section", {}, h("h3", {}, t("keys." + group)), h("dl", { class: "keys" }, rows));
  });
  const reset = h(
    "button",
    { type: "button", class: "soft", onclick: () => (page.keys.reset(), dialog.close(), page.redraw(), help(page)) },
    t("reset_keys"),
  );
  const fixed = h(
    "dl",
    { class: "keys fixed" },
    h("div", {}, h("dt", {}, t("ctrl_enter")), h("dd", {}, h("kbd", {}, "Ctrl"), h("kbd", {}, "↵"))),
    h("div", {}, h("dt", {}, t("leave_field")), h("dd", {}, h("kbd", {}, "Esc"))),
  );
  const dialog = open(page, {
    title: t("keyboard"),
    body: [
      h("p", { class: "quiet" }, t("remap_hint")),
      status,
      h("div", { class: "key-groups" }, tables),
      fixed,
      reset,
    ],
    kind: "wide",
    closed: () => page.redraw(),
  });
}

function keyRow(page, group, action, status) {
  const { t, keys } = page;
  const name = actionName(page, group, action);
  const button = h(
    "button",
    { type: "button", class: "key", "aria-label": t("change_key", { name, key: keyName(keys.of(group, action)) }) },
    keyName(keys.of(group, action)),
  );
  const listen = (event) => {
    if (event.key === "Tab" || ["Shift", "Control", "Alt", "AltGraph", "Meta"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    const key = event.ctrlKey || event.metaKey || event.altKey ? "" : normal(event);
    const holder = key && keys.bind(group, action, key);
    if (event.key !== "Escape" && !key) status.textContent = t("key_reserved", { key: event.key });
    else status.textContent = holder ? t("key_taken", { key: keyName(key), name: actionName(page, ...holder) }) : "";
    stop();
  };
  const stop = () => {
    button.removeEventListener("keydown", listen);
    button.removeEventListener("blur", stop);
    button.classList.remove("listening");
    button.textContent = keyName(keys.of(group, action));
  };
  button.addEventListener("click", () => {
    button.classList.add("listening");
    button.textContent = t("press_key");
    button.addEventListener("keydown", listen);
    button.addEventListener("blur", stop);
  });
  return h("div", {}, h("dt", {}, name), h("dd", {}, button));
}

function actionName(page, group, action) {
  const point = /^point(\d)$/.exec(action);
  return point ? page.pointName(Number(point[1]) - 1) : page.t(`action.${action}`);
}

/** The labels of this person, newest first, to be looked at and changed. */
export async function mine(page) {
  const { t } = page;
  const body = h("div", { "aria-live": "polite" }, h("p", { class: "quiet" }, t("loading")));
  const dialog = open(page, { title: t("mine"), body, kind: "drawer" });
  try {
    const labels = await page.api.get("/api/mine");
    const rows = labels.map((label) => mineRow(page, label, dialog));
    body.replaceChildren(rows.length ? h("ul", { class: "mine" }, rows) : h("p", { class: "quiet" }, t("none_yet")));
  } catch (error) {
    body.replaceChildren(
      h(
        "p",
        { class: "warning", role: "alert" },
        t(error.status === 0 ? "offline_list" : "failed", { message: error.message }),
      ),
    );
    if (error.needsLogin) page.login();
  }
}

function mineRow(page, label, dialog) {
  const { t } = page;
  const when = new Intl.DateTimeFormat(t.language, { dateStyle: "medium", timeStyle: "short" }).format(
    new Date(label.time),
  );
  const said = h("span", { class: `said ${label.outcome}` }, sentence(t, label.outcome, label.strength));
  const facts = h(
    "small",
    {},
    when,
    label.version > 1 ? ` · ${t("version", { n: label.version })}` : "",
    label.editable ? "" : ` · ${t("closed")}`,
  );
  const choose = () => (dialog.close(), page.edits.open(label.assignment));
  return h(
    "li",
    {},
    h(
      "button",
      { type: "button", disabled: !label.editable, onclick: choose },
      h("span", { class: "title", dir: "auto" }, label.title),
      said,
      facts,
    ),
  );
}
