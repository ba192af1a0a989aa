// Elements, identifiers and little else: all that the page needs of a framework.

/** An element: props are attributes, but for functions (listeners: onclick) and `class`; children are nodes or text. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

const PATHS = {
  book: "M4 5.5A1.5 1.5 0 0 1 5.5 4H11v16H5.5A1.5 1.5 0 0 1 4 18.5zM20 5.5A1.5 1.5 0 0 0 18.5 4H13v16h5.5a1.5 1.5 0 0 0 1.5-1.5z",
  list: "M4 6h16M4 12h16M4 18h10",
  help: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18M9.6 9.3a2.5 2.5 0 1 1 3.6 2.3c-.8.4-1.2 1-1.2 1.9M12 16.8v.2",
  person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8M4.5 20a7.5 7.5 0 0 1 15 0",
  undo: "M8 5 4 9l4 4M4 9h10a5.5 5.5 0 0 1 0 11h-3",
  skip: "M5 5l8 7-8 7zM18 5v14",
  flag: "M6 21V4M6 4.5h11l-2.5 4 2.5 4H6",
  pencil: "M4 20l1-4.5L16 4.5l3.5 3.5L8.5 19z",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6.5 6.5l11 11M17.5 6.5l-11 11",
  minus: "M6 12h12",
  play: "M7 4.5v15l12-7.5z",
  pause: "M8 5v14M16 5v14",
  question: "M8.6 8.3a3.5 3.5 0 1 1 5 3.2c-1.1.5-1.6 1.4-1.6 2.6M12 18v.2",
  cloud: "M7 18a4 4 0 0 1-.5-8A5.5 5.5 0 0 1 17 9.2 4.4 4.4 0 0 1 16.8 18z",
};

/** A line icon; it says nothing to screen readers, so the button that has it needs a name. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** A random UUID (version 4) as 32 hexadecimal digits. `crypto.randomUUID` exists on https only; this works on http. */
export function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Sets which of two states a toggle button is in. */
export function press(button, on) {
  button.setAttribute("aria-pressed", String(Boolean(on)));
}
