// Labels and reports on their way. Each is kept in the browser under its own identifier until the server has
// acknowledged it, and is sent again with that identifier, which the server knows: it arrives once.

const PAUSES = [1, 2, 4, 8, 15]; // seconds before the next try

export class Outbox {
  #sending = null;
  #tries = 0;
  #last = 0;
  #timer = 0;

  /**
   * @param events  changed(), saved(body, answer), refused(entry, error), login()
   */
  constructor(api, box, events) {
    Object.assign(this, { api, box, events });
    this.offline = false;
    addEventListener("online", () => this.flush());
    addEventListener("offline", () => this.#state(true));
    document.addEventListener("visibilitychange", () => document.hidden || this.flush());
  }

  /** Those not yet acknowledged, oldest first. */
  get waiting() {
    return this.#entries("out.");
  }

  /** Those that the server refused, with its `error`; they are kept until somebody decides. */
  get refused() {
    return this.#entries("refused.");
  }

  /** Keeps something until it is acknowledged; `flush` sends it. */
  keep(path, body) {
    this.#last = Math.max(Date.now(), this.#last + 1); // in order, also those of one millisecond
    this.box.set("out." + body.id, { path, body, at: this.#last });
    this.events.changed();
  }

  forget(id) {
    this.box.remove("refused." + id);
    this.events.changed();
  }

  /** Sends all that waits, one after the other; one tab at a time where the browser has locks. */
  flush() {
    this.#sending ??= this.#locked(() => this.#drain()).finally(() => (this.#sending = null));
    return this.#sending;
  }

  #locked(work) {
    // Without https there are no locks; two tabs may then send one label twice, and the server takes it once.
    return navigator.locks ? navigator.locks.request(this.box.prefix + "outbox", work) : work();
  }

  async #drain() {
    clearTimeout(this.#timer);
    for (let entry; (entry = this.waiting[0]);) {
      try {
        const answer = await this.api.post(entry.path, entry.body);
        this.#acknowledge(entry, answer);
      } catch (error) {
        if (!this.#failed(entry, error)) return;
      }
    }
    this.#state(false);
  }

  #acknowledge({ body }, answer) {
    this.#tries = 0;
    this.#state(false);
    this.box.remove("out." + body.id);
    for (const later of this.waiting) {
      // A label that was changed before it arrived: the next one is about the version that the server has just given.
      // One that another tab gave without knowing of this one changes nothing, and is for the server to refuse.
      if (later.body.assignment !== body.assignment || !answer.version || !later.body.base_version) continue;
      later.body.base_version = answer.version;
      this.box.set("out." + later.body.id, later);
    }
    this.events.saved(body, answer);
    this.events.changed();
  }

  /** Whether the next one may be tried at once. */
  #failed(entry, error) {
    if (error.needsLogin) this.events.login();
    else if (error.passing) this.#later(error);
    else {
      this.#tries = 0;
      this.box.remove("out." + entry.body.id);
      this.box.set("refused." + entry.body.id, { ...entry, error: { code: error.code, message: error.message } });
      this.events.refused(entry, error);
      this.events.changed();
      return true;
    }
    return false;
  }

  #later(error) {
    this.#state(error.status === 0);
    const seconds = error.wait || PAUSES[Math.min(this.#tries++, PAUSES.length - 1)];
    this.#timer = setTimeout(() => this.flush(), seconds * 1000);
  }

  #state(offline) {
    if (this.offline === offline) return;
    this.offline = offline;
    this.events.changed();
  }

  #entries(start) {
    const entries = this.box.names(start).map((name) => this.box.get(name));
    return entries.filter(Boolean).sort((one, other) => one.at - other.at);
  }
}
