// The bar at the top: where one is, what is kept, and the person's own settings.

import * as dialogs from "./dialogs.js";
import { h, icon } from "./dom.js";
import { LANGUAGES } from "./i18n.js";

/** The head of the page: {element, progress(progress, waiting), saved(state)}. */
export function head(page) {
  const { t, me } = page;
  const label = h("span", { class: "count" });
  const meter = h("progress", { max: 1, value: 0, "aria-label": t("progress") });
  const status = h("button", {
    type: "button",
    class: "status",
    "aria-live": "polite",
    onclick: () => page.edits.review(),
  });
  const buttons = ["guidelines", "mine", "help"].map((action) => {
    const mark = { guidelines: "book", mine: "list", help: "help" }[action];
    const name = t("action." + action);
    return h(
      "button",
      {
        type: "button",
        class: "ghost",
        id: action,
        title: name,
        "aria-label": name,
        onclick: () => page.act("common", action),
      },
      icon(mark),
      h("span", {}, name),
    );
  });
  const person = h(
    "button",
    {
      type: "button",
      class: "ghost",
      id: "person",
      "aria-label": t("settings_of", { name: me.name }),
      title: me.name,
      onclick: () => settings(page),
    },
    icon("person"),
    h("span", { dir: "auto" }, me.name),
  );
  const element = h(
    "header",
    { class: "head" },
    h("strong", { class: "project", dir: "auto" }, page.project.name),
    h("div", { class: "progress" }, meter, label),
    status,
    h("nav", { "aria-label": t("menu") }, buttons, person),
  );

  const progress = ({ done, skipped, total, quota }, waiting) => {
    const goal = quota ? Math.min(quota, total) : total;
    const now = Math.min(done + skipped + waiting, goal);
    label.textContent = t("done_of", { done: now, total: goal });
    meter.max = Math.max(goal, 1);
    meter.value = now;
  };
  const saved = ({ waiting, offline, refused, fragile }) => {
    const state = refused ? "refused" : offline ? "offline" : waiting ? "waiting" : "saved";
    status.className = `status ${state}`;
    const count = refused || waiting;
    status.replaceChildren(
      icon("cloud"),
      h("span", {}, t(`state.${state}`, { n: count }), fragile ? ` ${t("fragile")}` : ""),
    );
    status.disabled = !refused;
  };
  return { element, progress, saved };
}

/** Language, colours, and how the page behaves; kept for this person in this browser. */
function settings(page) {
  const { t, likes, me } = page;
  const select = (name, options) => {
    const list = Object.entries(options).map(([value, text]) =>
      h("option", { value, selected: likes[name] === value }, text),
    );
    const field = h("select", { id: "like-" + name, onchange: () => page.like({ [name]: field.value }) }, list);
    return h("div", { class: "setting" }, h("label", { for: "like-" + name }, t("like." + name)), field);
  };
  const toggle = (name) => {
    const button = h("button", {
      type: "button",
      class: "switch",
      role: "switch",
      "aria-checked": String(likes[name]),
      "aria-labelledby": "like-" + name,
      onclick: flip,
    });
    function flip() {
      page.like({ [name]: !likes[name] });
      button.setAttribute("aria-checked", String(likes[name]));
    }
    return h(
      "div",
      { class: "setting" },
      h("span", {}, h("span", { id: "like-" + name }, t("like." + name)), h("small", {}, t(`like.${name}.hint`))),
      button,
    );
  };
  const away = [
    me.role === "reviewer" && h("a", { href: "/review", class: "soft" }, t("review")),
    ["manager", "admin"].includes(me.role) && h("a", { href: "/manage", class: "soft" }, t("manage")),
    h("button", { type: "button", class: "soft", onclick: () => page.leave() }, t("log_out")),
  ];
  const themes = Object.fromEntries(["auto", "light", "dark"].map((name) => [name, t("theme." + name)]));
  dialogs.open(page, {
    title: me.name,
    body: h(
      "div",
      { class: "settings" },
      select("language", LANGUAGES),
      select("theme", themes),
      toggle("quick"),
      toggle("together"),
      toggle("raw"),
      h("div", { class: "dialog-actions" }, away),
    ),
  });
}

/** What is shown where there is no item: {element}. */
export function ending(page, { offline, waiting, failed }) {
  const { t, counts } = page;
  const key = offline
    ? "end.offline"
    : failed
      ? "end.failed"
      : counts.quota && counts.done >= counts.quota
        ? "end.quota"
        : counts.left > 0
          ? "end.busy"
          : "end.done";
  const lines = [h("p", {}, t(key, { n: waiting, message: failed }))];
  if (key !== "end.offline" && !failed) lines.push(h("p", { class: "quiet" }, t("end.stays")));
  const mark = h("div", { class: "mark", "aria-hidden": "true" }, icon(offline || failed ? "cloud" : "check"));
  const again = h("button", { type: "button", class: "soft", onclick: () => page.more() }, t("look_again"));
  return h(
    "div",
    { class: "ending", role: "status" },
    mark,
    h("h1", {}, t(`${key}.title`)),
    lines,
    h("p", { class: "count" }, t("done", { n: counts.done + counts.skipped })),
    again,
  );
}
