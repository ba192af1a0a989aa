// One answer, about which a question is asked.

import { h } from "./dom.js";
import { say } from "./say.js";
import { chat, text } from "./text.js";

/** The page of a check: {element, update(draft), raw(plain), act(group, action), stop()}. */
export function check(view, page) {
  const { t } = page;
  const prompt = chat(view.prompt, page.likes.raw, t);
  const body = text(view.completion, page.likes.raw, t);
  const known = knownAnswer(view.answer, page);
  const more = say(view, page);
  const head = h("h2", { class: "side-head", id: "side-a" }, t("the_answer"));
  const answer = h(
    "article",
    { class: "answer", "aria-labelledby": "side-a" },
    head,
    h("div", { class: "scroller" }, body),
  );
  const question = h("p", { class: "asked", dir: "auto" }, view.question || t("is_it_right"));
  const element = h("div", { class: "item narrow" }, prompt, known?.element, question, answer, more.element);
  const raw = (plain) => {
    prompt.draw(plain);
    body.draw(plain);
    known?.draw(plain);
  };
  const act = (group, action) =>
    group === "check" ? page.choose({ outcome: action, strength: "" }) : more.act(action);
  return { element, update: more.update, raw, act, stop: () => {} };
}

/** The known answer, where there is one: text, or a block as the server renders it. */
export function knownAnswer(answer, page) {
  if (answer === null || answer === undefined || answer === "") return null;
  const content =
    typeof answer === "string" ? { html: h("p", { dir: "auto" }, answer).outerHTML, raw: answer } : answer;
  const body = text(content, page.likes.raw, page.t);
  const element = h(
    "section",
    { class: "known", "aria-label": page.t("known_answer") },
    h("div", { class: "role" }, page.t("known_answer")),
    body,
  );
  return { element, draw: body.draw };
}
