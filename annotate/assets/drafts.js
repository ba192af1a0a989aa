// What has been said but not sent, kept by assignment: a refresh, the back button or a crash loses nothing.

import { isBlank } from "./draft.js";

const KEPT = 30 * 24 * 3600 * 1000; // milliseconds

export class Drafts {
  constructor(box) {
    this.box = box;
    for (const name of box.names("draft.")) if (!(box.get(name)?.at > Date.now() - KEPT)) box.remove(name);
  }

  /** What was kept about this version of the label of the view, else what is said at the start. */
  load(view, start, version) {
    const kept = this.box.get("draft." + view.assignment);
    return kept?.version === version ? { ...start, ...kept.draft } : start;
  }

  keep(view, draft, version) {
    const name = "draft." + view.assignment;
    if (version || !isBlank(view, draft) || draft.active_ms > 1000)
      this.box.set(name, { draft, version, at: Date.now() });
  }

  remove(assignment) {
    this.box.remove("draft." + assignment);
  }
}
