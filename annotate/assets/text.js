// Text of others: questions, answers, steps. The server has made it safe; here it gets its frame.

import { h } from "./dom.js";

const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

/**
 * A block of text, `{html, raw, cut_off}`, drawn or as it was written.
 *
 * Whatever is in it stays in it: the element is a containing block and clips what it paints.
 */
export function text(content, raw, t) {
  const element = h("div", { class: "text", lang: "" }); // whatever it is written in, it is not the page's language
  const rest = content.cut_off ? [h("p", { class: "cut" }, t("cut_off"))] : [];
  const box = h("div", { class: "written" }, element, ...rest);
  box.draw = (plain) => fill(element, content, plain);
  box.draw(raw);
  return box;
}

function fill(element, { html, raw }, plain) {
  element.classList.toggle("raw", plain);
  if (plain) {
    element.textContent = raw;
    return;
  }
  element.innerHTML = html;
  element.querySelectorAll("ol, ul").forEach(indent);
}

/** Makes room for the markers of a list, on the side where its text begins: one that juts out would be cut off. */
function indent(list) {
  const letter = /\p{L}/u.exec(list.textContent)?.[0] ?? "";
  list.dir = RIGHT_TO_LEFT.test(letter) ? "rtl" : "ltr";
  for (const item of list.children) item.removeAttribute("dir");
  const numbers = [...list.children].map((item, i) => item.value || i + 1); // a year or a result is one as well
  if (list.matches("ol")) list.style.paddingInlineStart = `${String(Math.max(0, ...numbers)).length + 2.2}ch`;
}

/** The turns of a prompt. */
export function chat(prompt, raw, t) {
  const turns = prompt.map((turn) => {
    const role = ["system", "user", "assistant", "tool"].includes(turn.role) ? turn.role : "user";
    const body = text(turn, raw, t);
    const name = prompt.length === 1 && role === "user" ? t("question") : t("role." + role);
    const element = h("div", { class: `turn ${role}` }, h("div", { class: "role" }, name), body);
    element.draw = body.draw;
    return element;
  });
  const section = h("section", { class: "chat", "aria-label": t("conversation") }, turns);
  section.draw = (plain) => turns.forEach((turn) => turn.draw(plain));
  return section;
}
