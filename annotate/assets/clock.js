// Time spent on an item: it stands still while the tab is hidden and after a minute without a hand on the machine.

const IDLE = 60_000;
const SIGNS = ["pointermove", "pointerdown", "keydown", "wheel", "touchstart", "scroll"];

export class Clock {
  #total = 0;
  #counted = performance.now(); // up to when time is in the total
  #sign = performance.now();
  #hidden = document.hidden;

  constructor() {
    const sign = () => {
      this.#count();
      this.#sign = performance.now();
    };
    for (const name of SIGNS) addEventListener(name, sign, { passive: true, capture: true });
    document.addEventListener("visibilitychange", () => {
      this.#count();
      this.#hidden = document.hidden;
      this.#sign = performance.now();
    });
  }

  /** Starts anew, from the time that was spent before. */
  start(ms = 0) {
    this.#total = ms;
    this.#counted = this.#sign = performance.now();
  }

  /** Milliseconds so far. */
  get ms() {
    this.#count();
    return Math.round(this.#total);
  }

  /** Milliseconds since the last sign of a person; without end while the tab is hidden. */
  get idle() {
    return this.#hidden ? Infinity : performance.now() - this.#sign;
  }

  #count() {
    const now = performance.now();
    const until = Math.min(now, this.#sign + IDLE);
    if (!this.#hidden) this.#total += Math.max(0, until - this.#counted);
    this.#counted = now;
  }
}
