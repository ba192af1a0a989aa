// Logging in again without leaving the page, so that nothing written is lost.

import { h } from "./dom.js";
import { open } from "./dialogs.js";

/** Asks for the password: whether the same person is logged in again when the window closes. */
export function login(page) {
  const { t, me } = page;
  return new Promise((resolve) => {
    const password = h("input", { id: "password", type: "password", autocomplete: "current-password", required: true });
    const name = h("input", {
      type: "text",
      autocomplete: "username",
      value: me.name,
      readonly: true,
      "aria-label": t("name"),
      class: "who",
      dir: "auto",
    });
    const warning = h("p", { class: "warning", role: "alert" });
    const submit = h("button", { class: "send" }, t("log_in"));
    const enter = async (event) => {
      event.preventDefault();
      submit.disabled = true;
      warning.textContent = await attempt(page, password.value);
      submit.disabled = false;
      if (warning.textContent) password.select();
      else done();
    };
    const form = h(
      "form",
      { class: "login", onsubmit: enter },
      h("p", {}, t("expired_hint")),
      name,
      h("label", { for: "password" }, t("password")),
      password,
      warning,
      h("div", { class: "dialog-actions" }, submit),
    );
    let back = false;
    const done = () => {
      back = true;
      dialog.close();
    };
    // Whoever logs in again in another tab need not do it here as well.
    const look = async () => {
      const same = !document.hidden && (await page.api.renew().catch(() => false));
      if (same) done();
    };
    const closed = () => {
      document.removeEventListener("visibilitychange", look);
      resolve(back);
    };
    const dialog = open(page, { title: t("expired"), body: form, closed });
    document.addEventListener("visibilitychange", look);
    password.focus();
  });
}

/** What went wrong, "" for nothing. */
async function attempt(page, password) {
  const { t, me } = page;
  try {
    const status = await page.api.signIn(me.name, password);
    if (status === 429) return t("slow_down");
    if (status >= 400) return t("wrong_password");
    return (await page.api.renew()) ? "" : t("other_person");
  } catch (error) {
    return t(error.status === 0 ? "offline_login" : "failed", { message: error.message });
  }
}
