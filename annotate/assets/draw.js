// Drawing on a canvas: a picture that fits, and curves in lanes, one for each entry of a state.

const LANE = 52;
const MARGIN = 10;

/** A number of three digits; a dash for what is none. */
export function brief(value) {
  return Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "–";
}

/** A picture as large as fits; what is wrong with it where it cannot be drawn. */
export function picture(context, image, width, height, t) {
  if (!image.complete) return;
  if (!image.naturalWidth) {
    context.fillStyle = getComputedStyle(context.canvas).color;
    context.fillText(t("no_picture"), MARGIN, 20);
    return;
  }
  const scale = Math.min(width / image.naturalWidth, height / image.naturalHeight);
  const [w, h] = [image.naturalWidth * scale, image.naturalHeight * scale];
  context.imageSmoothingEnabled = scale < 3; // small pictures of games stay sharp
  context.drawImage(image, (width - w) / 2, (height - h) / 2, w, h);
}

export const lanes = {
  height: (clip) => (clip.states.length ? clip.states[0].length * LANE + MARGIN : 0),

  /** The curves up to now strong, what comes after faint; each lane with its name and its value now. */
  draw(context, clip, bounds, at, { width, top, style }) {
    const last = Math.max(clip.states.length - 1, 1);
    const x = (step) => MARGIN + (step / last) * (width - 2 * MARGIN);
    const ink = {
      text: style.color,
      line: style.getPropertyValue("--curve"),
      faint: style.getPropertyValue("--faint"),
    };
    clip.states[0].forEach((_, i) => {
      const base = top + MARGIN + i * LANE;
      const [low, high] = bounds[i];
      const y = (value) => base + LANE - 8 - (high > low ? (value - low) / (high - low) : 0.5) * (LANE - 28);
      const values = clip.states.map((state) => state[i]);
      curve(context, values, x, y, last, { color: ink.faint, width: 1.5 });
      curve(context, values, x, y, at, { color: ink.line, width: 2.25 });
      const now = values[Math.min(Math.round(at), values.length - 1)];
      caption(context, clip.names[i] ?? String(i + 1), now, { base, width, color: ink.text, family: style.fontFamily });
      if (Number.isFinite(now)) dot(context, x(at), y(between(values, at)), ink.line);
    });
  },
};

/** The value at a time between two steps. */
function between(values, at) {
  const [i, j] = [Math.floor(at), Math.ceil(at)].map((step) => Math.min(step, values.length - 1));
  return values[i] + (at - i) * (values[j] - values[i] || 0);
}

function curve(context, values, x, y, until, { color, width }) {
  context.beginPath();
  let open = false; // a value that is not a number is a gap
  values.forEach((value, step) => {
    if (step > until) return;
    if (!Number.isFinite(value)) open = false;
    else if (open) context.lineTo(x(step), y(value));
    else context.moveTo(x(step), y(value));
    open = Number.isFinite(value);
  });
  const end = Math.min(until, values.length - 1);
  if (open && end % 1) context.lineTo(x(end), y(between(values, end)));
  Object.assign(context, { strokeStyle: color, lineWidth: width, lineJoin: "round", lineCap: "round" });
  context.stroke();
}

function caption(context, name, value, { base, width, color, family }) {
  Object.assign(context, { fillStyle: color, font: `12px ${family}`, textBaseline: "top", textAlign: "left" });
  context.fillText(name, MARGIN, base, width - 90);
  context.textAlign = "right";
  context.fillText(brief(value), width - MARGIN, base);
}

function dot(context, x, y, color) {
  context.beginPath();
  context.arc(x, y, 4, 0, 2 * Math.PI);
  context.fillStyle = color;
  context.fill();
}
