// The items at hand: the one shown and those fetched ahead of it, so that the next one is there at once and labelling
// goes on for a while without the server.

import { uuid } from "./dom.js";

const AHEAD = 4;
const SOON = 5 * 60; // seconds
const MOST_HELD = 20; // the server reads no more
const ALIVE = 90_000; // a tab that has not been heard of for so long is closed

export class Queue {
  items = [];
  done = false; // whether the server has none for us
  #filling = null;
  #again = false;
  #tab = uuid();

  /**
   * @param busy    () => assignments whose labels are under way: they are held, too
   * @param events  progress(progress), failed(error)
   */
  constructor(api, box, busy, events) {
    Object.assign(this, { api, box, busy, events });
    setInterval(() => this.#announce(), 20_000);
    addEventListener("pagehide", () => box.remove("tab." + this.#tab));
    addEventListener("pageshow", () => this.#announce());
  }

  get current() {
    return this.items[0] ?? null;
  }

  /** Leaves the current item for the next that no other tab shows. */
  shift() {
    const [, ...rest] = this.items;
    const taken = this.#elsewhere();
    const free = rest.findIndex((view) => !taken.has(view.assignment));
    this.items = free > 0 ? rest.slice(free) : rest;
    this.#announce();
    return this.current;
  }

  drop(assignment) {
    this.items = this.items.filter((view) => view.assignment !== assignment);
    this.#announce();
  }

  /** Fetches what is missing; one request at a time, and once more where it is asked for meanwhile. */
  fill() {
    this.#again = this.#filling !== null;
    this.#filling ??= this.#run().finally(() => (this.#filling = null));
    return this.#filling;
  }

  async #run() {
    do {
      this.#again = false;
      await this.#fill();
    } while (this.#again);
  }

  async #fill() {
    const missing = AHEAD + 1 - this.items.length;
    if (missing <= 0) return;
    try {
      await this.#fetch(missing, this.#elsewhere());
      // All that is left is shown in other tabs: better the same item twice than a tab that says there is none.
      if (!this.items.length && this.#elsewhere().size) await this.#fetch(missing, new Set());
    } catch (error) {
      this.events.failed(error);
    }
  }

  async #fetch(count, elsewhere) {
    const mine = this.items.map((view) => view.assignment);
    const held = [...new Set([...mine, ...this.busy(), ...elsewhere])].slice(0, MOST_HELD);
    const { items, progress } = await this.api.post("/api/next", { count, held });
    // A label may have been given, here or in another tab, while the answer was on its way.
    const known = new Set([...this.items.map((view) => view.assignment), ...this.busy()]);
    const fresh = items.filter((view) => !known.has(view.assignment));
    if (!this.items.length) bring(fresh, remembered());
    this.items.push(...fresh);
    this.done = !this.items.length;
    this.#announce();
    this.events.progress(progress);
  }

  /** Renews what is held for us and would be given to others soon; lets go of what already has been, but for `kept`. */
  async renew(kept) {
    const soon = Date.now() / 1000 + this.api.skew + SOON;
    for (const view of this.items.filter((held) => held.lease_until < soon)) {
      try {
        const { lease_until } = await this.api.post("/api/renew", { assignment: view.assignment });
        view.lease_until = lease_until;
      } catch (error) {
        const gone = [404, 409].includes(error.status);
        if (gone && view.assignment !== kept) this.drop(view.assignment);
      }
    }
  }

  /** Tells the other tabs what this one shows, and this tab's next load what it showed. */
  #announce() {
    const assignment = this.current?.assignment;
    const name = "tab." + this.#tab;
    if (!assignment) return this.box.remove(name);
    this.box.set(name, { assignment, at: Date.now() });
    try {
      sessionStorage.setItem("prefrl.current", assignment);
    } catch {
      // Then a refresh begins with whatever the server gives first.
    }
  }

  #elsewhere() {
    const names = this.box.names("tab.").filter((name) => name !== "tab." + this.#tab);
    const shown = new Set();
    for (const name of names) {
      const { assignment, at } = this.box.get(name) ?? { at: 0 };
      if (Date.now() - at < ALIVE) shown.add(assignment);
      else this.box.remove(name);
    }
    return shown;
  }
}

function remembered() {
  try {
    return sessionStorage.getItem("prefrl.current");
  } catch {
    return null;
  }
}

function bring(views, assignment) {
  const place = views.findIndex((view) => view.assignment === assignment);
  if (place > 0) views.unshift(...views.splice(place, 1));
}
