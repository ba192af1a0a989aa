// Two pieces of episodes: pictures, or the states themselves drawn as curves, played alone or together.

import { h, icon, press } from "./dom.js";
import { brief, lanes, picture } from "./draw.js";
import { cap } from "./vote.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4];

/** Both clips: {a, b, before, raw(plain), act(action), stop()}. */
export function clips(view, page) {
  const players = new Players(view, page);
  const [a, b] = players.all.map((player) => player.element);
  return {
    a,
    b,
    before: players.controls,
    raw: (plain) => players.all.forEach((player) => player.numbers(plain)),
    act: (action) => players.act(action),
    stop: () => players.stop(),
  };
}

class Players {
  #frame = 0;
  #before = 0;

  constructor(view, page) {
    const { t } = page;
    Object.assign(this, { page, speed: 1, together: true });
    const bounds = shared(view.a, view.b);
    const events = { moved: (player) => this.#follow(player), pressed: (player) => this.#switch(player) };
    this.all = ["a", "b"].map((side) => new Player(view[side], side, bounds, page, events));
    const toggle = h(
      "button",
      { type: "button", class: "soft", onclick: () => this.act("play") },
      icon("play"),
      h("span", {}, t("play_both")),
      cap(page, "clips", "play"),
    );
    const link = h(
      "button",
      {
        type: "button",
        class: "soft",
        "aria-pressed": "true",
        onclick: () => press(link, (this.together = !this.together)),
      },
      h("span", {}, t("linked")),
    );
    const options = SPEEDS.map((speed) => h("option", { value: speed, selected: speed === 1 }, `${speed}×`));
    const speed = h(
      "select",
      { "aria-label": t("speed"), onchange: () => (this.speed = Number(speed.value)) },
      options,
    );
    this.controls = h("div", { class: "film", role: "group", "aria-label": t("playback") }, toggle, link, speed);
    this.toggle = toggle;
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.#play(this.all);
    this.observer = new ResizeObserver(() => this.all.forEach((player) => player.draw()));
    this.all.forEach((player) => this.observer.observe(player.canvas));
  }

  get playing() {
    return this.all.filter((player) => player.playing);
  }

  act(action) {
    if (action === "play") {
      if (this.playing.length) this.#play([]);
      else this.#play(this.all);
      return true;
    }
    const step = { back: -1, forward: 1 }[action];
    if (!step) return false;
    this.#play([]);
    this.all.forEach((player) => player.seek(Math.round(player.at) + step));
    return true;
  }

  stop() {
    cancelAnimationFrame(this.#frame);
    this.observer.disconnect();
  }

  /** Plays these and pauses the others; from the start where all have ended. */
  #play(players) {
    if (players.every((player) => player.ended)) players.forEach((player) => player.seek(0));
    this.all.forEach((player) => player.show(players.includes(player)));
    this.#buttons();
    cancelAnimationFrame(this.#frame);
    this.#before = performance.now();
    if (players.length) this.#frame = requestAnimationFrame((now) => this.#tick(now));
  }

  #tick(now) {
    const seconds = ((now - this.#before) / 1000) * this.speed;
    this.#before = now;
    this.playing.forEach((player) => player.advance(seconds));
    if (this.playing.length) this.#frame = requestAnimationFrame((later) => this.#tick(later));
    else this.#buttons();
  }

  #buttons() {
    const on = this.playing.length > 0;
    this.toggle.querySelector("svg").replaceWith(icon(on ? "pause" : "play"));
    this.toggle.querySelector("span").textContent = this.page.t(on ? "pause_both" : "play_both");
  }

  /** A person has moved one player: the other goes along where they are linked. */
  #follow(player) {
    this.#play([]);
    this.#linked(player).forEach((other) => other.seek(player.at));
  }

  /** The play button of one player. */
  #switch(player) {
    const group = this.#linked(player);
    const others = this.playing.filter((other) => !group.includes(other));
    this.#play(player.playing ? others : [...others, ...group]);
  }

  #linked(player) {
    return this.together ? this.all : [player];
  }
}

class Player {
  constructor(clip, side, bounds, page, events) {
    const { t } = page;
    const name = side.toUpperCase();
    Object.assign(this, { clip, bounds, page, at: 0, playing: false });
    this.count = Math.max(clip.frames.length, clip.states.length, 1);
    this.images = clip.frames.map((url) => this.#load(url));
    const height = (clip.frames.length ? 260 : 0) + lanes.height(clip);
    this.canvas = h("canvas", { role: "img", style: `height:${height}px`, "aria-label": this.#summary(name) });
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: this.count - 1,
      step: 1,
      value: 0,
      "aria-label": t("scrub", { name }),
      oninput: () => (this.seek(Number(this.slider.value)), events.moved(this)),
    });
    this.button = h(
      "button",
      { type: "button", class: "soft round", "aria-label": t("play", { name }), onclick: () => events.pressed(this) },
      icon("play"),
    );
    this.clock = h("output", { class: "clock" });
    this.table = h("div", { class: "numbers", tabindex: 0, hidden: true });
    this.element = h(
      "div",
      { class: "clip" },
      this.canvas,
      h("div", { class: "transport" }, this.button, this.slider, this.clock),
      this.table,
    );
    this.numbers(page.likes.raw);
    this.#label();
  }

  get ended() {
    return this.at >= this.count - 1;
  }

  seek(step) {
    this.at = Math.min(Math.max(step, 0), this.count - 1);
    this.#label();
    this.draw();
  }

  advance(seconds) {
    this.seek(this.at + seconds / this.clip.seconds);
    if (this.ended) this.show(false);
  }

  show(playing) {
    this.playing = playing;
    this.button.replaceChildren(icon(playing ? "pause" : "play"));
  }

  draw() {
    const { width, height } = this.canvas.getBoundingClientRect();
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const step = Math.min(Math.floor(this.at + 1e-9), this.count - 1);
    const lower = lanes.height(this.clip);
    if (this.images.length)
      picture(context, this.images[Math.min(step, this.images.length - 1)], width, height - lower, this.page.t);
    if (lower)
      lanes.draw(context, this.clip, this.bounds, this.at, {
        width,
        top: height - lower,
        style: getComputedStyle(this.canvas),
      });
  }

  /** Shows the states as numbers as well, or not. */
  numbers(plain) {
    this.table.hidden = !plain || !this.clip.states.length;
    if (this.table.hidden || this.table.firstChild) return;
    const names = this.clip.states[0].map((_, i) => this.clip.names[i] ?? String(i + 1));
    const head = h(
      "tr",
      {},
      h("th", { scope: "col" }, this.page.t("step_short")),
      names.map((name) => h("th", { scope: "col" }, name)),
    );
    const rows = this.clip.states.map((state, i) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, i + 1),
        state.map((value) => h("td", {}, String(value))),
      ),
    );
    this.table.append(h("table", {}, h("thead", {}, head), h("tbody", {}, rows)));
  }

  #load(url) {
    const image = new Image();
    image.onload = image.onerror = () => this.draw();
    image.src = url;
    return image;
  }

  #label() {
    this.slider.value = String(Math.round(this.at));
    const [now, end] = [this.at, this.count - 1].map((step) => (step * this.clip.seconds).toFixed(1));
    this.clock.textContent = `${now} / ${end} s`;
  }

  #summary(name) {
    const { t } = this.page;
    const start = t("clip", { name, steps: this.count, seconds: (this.count - 1) * this.clip.seconds });
    const { states, names } = this.clip;
    const lines = (states[0] ?? []).map((_, i) =>
      t("from_to", { name: names[i] ?? String(i + 1), from: brief(states[0][i]), to: brief(states.at(-1)[i]) }),
    );
    return [start, ...lines].join(" ");
  }
}

/** Least and greatest of each entry of the states, of both clips together, so that their curves can be compared. */
function shared(...both) {
  const states = both.flatMap((clip) => clip.states);
  return (states[0] ?? []).map((_, i) => {
    const values = states.map((state) => state[i]).filter(Number.isFinite);
    return values.length ? [Math.min(...values), Math.max(...values)] : [0, 0];
  });
}
