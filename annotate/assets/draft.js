// What a person has said of an item so far, as the server has it in a label. Pure functions.

/** Points of the preference scale from left to right: {outcome, strength, key}; the middle of an odd scale is a tie. */
export function points({ scale, strengths }) {
  const half = [...strengths].reverse().map((strength) => ({ outcome: "a", strength }));
  const other = strengths.map((strength) => ({ outcome: "b", strength }));
  const middle = scale % 2 ? [{ outcome: "tie", strength: "" }] : [];
  return [...half, ...middle, ...other].map((point, i) => ({ ...point, key: String(i + 1) }));
}

/** Whether a tie is said by a button of its own. */
export function lonelyTie({ scale, tie }) {
  return tie && scale % 2 === 0;
}

/** A draft in which nothing is said yet. */
export function blank(view) {
  const count = view.steps?.length ?? 0;
  return {
    outcome: "",
    strength: "",
    rationale: "",
    criteria: {},
    reasons: [],
    answer: { text: "", from: "" },
    ratings: Array(count).fill(null),
    alternatives: {},
    unsure: [],
    active_ms: 0,
  };
}

/** The draft that says what a label says. */
export function fromLabel(view, label) {
  const draft = blank(view);
  for (const name of Object.keys(draft)) draft[name] = structuredClone(label[name] ?? draft[name]);
  if (draft.ratings.length !== (view.steps?.length ?? 0)) draft.ratings = blank(view).ratings;
  return { ...draft, active_ms: 0 };
}

/** The place of the first step that is rated bad, or -1. */
export function firstError(draft) {
  return draft.ratings.indexOf(-1);
}

/** Steps that still need a rating; in `first_error` mode those after the first bad one need none. */
export function unrated(draft, mode) {
  const end = mode === "first_error" && firstError(draft) >= 0 ? firstError(draft) : draft.ratings.length;
  return [...draft.ratings.keys()].filter((i) => i < end && draft.ratings[i] === null && !draft.unsure.includes(i));
}

/** What is missing before the draft can be sent: "choice", "steps", "rationale" or "" for nothing. */
export function missing(view, draft, project) {
  if (view.kind === "steps" && unrated(draft, project.step_mode).length) return "steps";
  if (view.kind !== "steps" && !draft.outcome) return "choice";
  return project.rationale === "required" && !draft.rationale.trim() ? "rationale" : "";
}

/** The draft as a label of the step page or of the others: fields of other kinds empty, later steps unrated. */
export function toBody(view, draft, project) {
  const body = structuredClone(draft);
  if (view.kind === "steps") {
    body.outcome = "steps";
    const end = firstError(draft);
    if (project.step_mode === "first_error" && end >= 0) {
      body.ratings = body.ratings.map((rating, i) => (i > end ? null : rating));
      body.unsure = body.unsure.filter((i) => i <= end);
      body.alternatives = Object.fromEntries(Object.entries(body.alternatives).filter(([i]) => Number(i) <= end));
    }
  }
  if (body.outcome !== "skip") body.reasons = [];
  const written = Object.entries(body.alternatives).filter(([, text]) => text.trim());
  body.alternatives = Object.fromEntries(written);
  const { text, from } = body.answer;
  const unchanged = from && text === view[from]?.raw;
  if (!text.trim() || unchanged) body.answer = { text: "", from: "" };
  return body;
}

/** The draft as a skip: nothing but why, and the time. */
export function toSkip(view, { active_ms }, reason, note) {
  return { ...blank(view), ratings: [], outcome: "skip", reasons: reason ? [reason] : [], rationale: note, active_ms };
}

/** Whether nothing is said. */
export function isBlank(view, draft) {
  return JSON.stringify({ ...draft, active_ms: 0 }) === JSON.stringify(blank(view));
}
