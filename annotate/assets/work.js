// Where the label page begins.

import { Api } from "./api.js";
import { h } from "./dom.js";
import { Page } from "./page.js";

/** Starts the page, beside the element that Gradio has made for it; once. */
export async function start() {
  if (document.getElementById("work")) return;
  const root = h("div", { id: "work" }, h("p", { class: "boot", role: "status" }, "…"));
  document.body.append(root);
  const api = new Api();
  try {
    await new Page(root, api, await api.me()).open();
  } catch (error) {
    if (error.status === 401) return location.assign("/login");
    const again = h("button", { type: "button", class: "soft", onclick: () => location.reload() }, "↻");
    root.replaceChildren(h("div", { class: "ending", role: "alert" }, h("p", {}, error.message), again));
  }
}
