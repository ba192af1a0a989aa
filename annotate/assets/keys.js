// The keyboard: every action has a key, which each person may change.

const COMMON = {
  send: "Enter",
  skip: "s",
  flag: "f",
  undo: "z",
  mine: "h",
  guidelines: "g",
  raw: "r",
  note: "n",
  help: "?",
};
const PAIR = {
  point1: "1",
  point2: "2",
  point3: "3",
  point4: "4",
  point5: "5",
  point6: "6",
  point7: "7",
  point8: "8",
  tie: "t",
  both_bad: "b",
  criteria: "c",
  answer: "e",
  together: "j",
};
/** Actions and their first keys, by what kind of item they are for; those of `common` are for all. */
export const ACTIONS = {
  common: COMMON,
  pair: PAIR,
  clips: { play: " ", back: ",", forward: "." },
  steps: { good: "1", neutral: "2", bad: "3", unsure: "u", write: "a", previous: "ArrowUp", next: "ArrowDown" },
  check: { right: "1", wrong: "2", unsure: "3" },
};
/** Which groups are there for an item of a kind. */
export const GROUPS = {
  pair: ["pair", "common"],
  clips: ["pair", "clips", "common"],
  steps: ["steps", "common"],
  check: ["check", "common"],
};
// Tab and Escape move about, the F keys are the browser's, / and ' are Firefox's search, Backspace was its way back.
const RESERVED =
  /^(Tab|Escape|F\d+|Shift|Control|Alt|AltGraph|Meta|CapsLock|Dead|Process|Unidentified|Backspace|[/'])$/;
const NAMES = { " ": "␣", ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Enter: "↵" };

/** A key as it is printed on keyboards. */
export function keyName(key) {
  return NAMES[key] ?? (key.length === 1 ? key.toUpperCase() : key);
}

/** A key as bindings have it: letters small, so that Caps Lock changes nothing; "" for one that cannot be bound. */
export function normal({ key }) {
  if (!key || RESERVED.test(key)) return "";
  return key.length === 1 ? key.toLowerCase() : key;
}

/** Whether somebody is typing there. */
function isField(target) {
  if (!(target instanceof Element)) return false;
  return (
    target.isContentEditable ||
    target.matches("textarea, select, input:not([type=radio], [type=checkbox], [type=range])")
  );
}

/** Whether the element does something of its own on this key: buttons on Enter and Space, sliders on arrows. */
function owns(target, key) {
  if (!(target instanceof Element)) return false;
  if (target.matches("input[type=radio], input[type=range]") && (key.startsWith("Arrow") || key === " ")) return true;
  const control = target.closest("button, a, summary");
  return Boolean(control) && (key === " " || (key === "Enter" && !control.hasAttribute("data-choice")));
}

export class Keys {
  /**
   * @param act  act(group, action): does it, and says whether there was something to do
   */
  constructor(box, act) {
    Object.assign(this, { box, act });
    this.kind = "pair";
    this.own = box.get("keys", {});
    document.addEventListener("keydown", (event) => this.#press(event));
  }

  /** The key of an action. */
  of(group, action) {
    return this.own[`${group}.${action}`] ?? ACTIONS[group][action];
  }

  /** Gives an action a key; the group and action that have it already are returned, and nothing is changed then. */
  bind(group, action, key) {
    const holder = this.#holder(group, action, key);
    if (holder) return holder;
    this.own[`${group}.${action}`] = key;
    this.box.set("keys", this.own);
    return null;
  }

  reset() {
    this.own = {};
    this.box.remove("keys");
  }

  /** Which other action has the key, among those that can be there together. */
  #holder(group, action, key) {
    const near = Object.values(GROUPS)
      .filter((groups) => groups.includes(group))
      .flat();
    for (const other of new Set(near)) {
      const found = Object.keys(ACTIONS[other]).find(
        (name) => this.of(other, name) === key && (other !== group || name !== action),
      );
      if (found) return [other, found];
    }
    return null;
  }

  #press(event) {
    const { target, key } = event;
    const altGraph = event.getModifierState("AltGraph");
    if (event.defaultPrevented || event.repeat || event.isComposing || document.querySelector("dialog[open]")) return;
    if (key === "Escape") return this.#escape(event);
    if (key === "Enter" && (event.ctrlKey || event.metaKey) && !event.altKey) return this.#do(event, "common", "send");
    if ((event.ctrlKey || event.altKey) && !altGraph) return;
    if (event.metaKey || isField(target) || (event.shiftKey && /^\p{L}$/u.test(key))) return;
    const pressed = normal(event);
    if (!pressed || owns(target, key)) return;
    for (const group of GROUPS[this.kind]) {
      const action = Object.keys(ACTIONS[group]).find((name) => this.of(group, name) === pressed);
      if (action) return this.#do(event, group, action);
    }
  }

  /** Leaves a field or a button, and with none of them what one is in. */
  #escape(event) {
    if (event.target.closest?.("textarea, select, input, button, summary")) event.target.blur();
    else this.#do(event, "common", "leave");
  }

  #do(event, group, action) {
    if (this.act(group, action)) event.preventDefault();
  }
}
