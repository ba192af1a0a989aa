// What this browser keeps for one person of one project: drafts, labels under way, keys, likings.

export class Box {
  #memory = new Map();

  constructor(project, person) {
    this.prefix = `prefrl.${project}.${person}.`;
  }

  get(name, otherwise = null) {
    const text = this.#read(this.prefix + name);
    try {
      return text === null ? otherwise : JSON.parse(text);
    } catch {
      return otherwise;
    }
  }

  /** Keeps a value; false where only this tab's memory could take it, as the browser's storage is full or forbidden. */
  set(name, value) {
    const key = this.prefix + name;
    const text = JSON.stringify(value);
    try {
      localStorage.setItem(key, text);
      this.#memory.delete(key);
      return true;
    } catch {
      this.#memory.set(key, text);
      return false;
    }
  }

  remove(name) {
    this.#memory.delete(this.prefix + name);
    try {
      localStorage.removeItem(this.prefix + name);
    } catch {
      // Forbidden storage holds nothing.
    }
  }

  /** Names that begin with `start`. */
  names(start) {
    const keys = new Set(this.#memory.keys());
    try {
      for (let i = 0; i < localStorage.length; i++) keys.add(localStorage.key(i));
    } catch {
      // As above.
    }
    const wanted = this.prefix + start;
    return [...keys].filter((key) => key.startsWith(wanted)).map((key) => key.slice(this.prefix.length));
  }

  /** Calls `then(name, value)` when another tab of this browser keeps or removes (null) something of ours. */
  watch(then) {
    addEventListener("storage", ({ key, newValue }) => {
      if (key?.startsWith(this.prefix)) then(key.slice(this.prefix.length), newValue && JSON.parse(newValue));
    });
  }

  /** Whether something is in memory only and would be lost with the tab. */
  get fragile() {
    return this.#memory.size > 0;
  }

  #read(key) {
    if (this.#memory.has(key)) return this.#memory.get(key);
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  }
}
