// Numbers as people read them, curves, heat maps and tables. What is drawn again takes the place of what was there.

const NONE = "–";
const POINTS_MAX = 300;

function digits(value) {
  const size = Math.abs(value);
  return size >= 99.95 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

function scaled(value, units) {
  if (value === undefined || Number.isNaN(value)) return NONE;
  const [size, unit] = units.find(([size]) => Math.abs(value) >= size * 0.9995) ?? units.at(-1);
  const shown = value / size;
  const text = shown === 0 || (size === 1 && Number.isInteger(shown)) ? String(shown) : digits(shown);
  return unit ? `${text} ${unit}` : text;
}

const COUNTS = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
const RATES = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
const TIMES = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

export const count = (value) => scaled(value, COUNTS);
export const bytes = (value) => (value === null ? "none" : scaled(value, BYTES));
export const time = (value) => scaled(value, TIMES);
export const perSecond = (value) => (Number.isNaN(value) ? NONE : `${count(value)} /s`);
export const bytesPerSecond = (value) => (Number.isNaN(value) ? NONE : `${scaled(value, RATES)}/s`);
export const percent = (value) => (Number.isNaN(value) ? NONE : `${digits(100 * value)} %`);

/// Sets the text of an element, if it is another one.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/// Fills a table's body: of each row the first cell is its head. A cell is a text, or a class for a swatch and a text.
export function fill(table, rows) {
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = body.rows[at] ?? body.insertRow();
    cells.forEach((cell, column) => {
      let place = row.cells[column];
      if (!place) {
        place = make(column ? "td" : "th", column ? {} : { scope: "row" });
        row.append(place);
      }
      if (typeof cell === "string") return say(place, cell);
      const [kind, text] = cell;
      if (place.dataset.kind !== kind || place.textContent !== text) {
        place.dataset.kind = kind;
        place.replaceChildren(make("span", { class: `swatch ${kind}` }), text);
      }
    });
  });
}

/// The curve of a track: the largest value of each piece, from zero up. Returns the least and the greatest value.
export function spark(svg, track, span) {
  const [ring, columns] = track.over(span);
  const step = Math.ceil(columns / POINTS_MAX);
  const points = [];
  let [low, high] = [Infinity, -Infinity];
  let piece = NaN;
  ring.each(columns, (index, at) => {
    const value = ring.data[at];
    if (!Number.isNaN(value)) {
      low = Math.min(low, value);
      high = Math.max(high, value);
      piece = Number.isNaN(piece) ? value : Math.max(piece, value);
    }
    if (index % step === step - 1) {
      points.push([index / (columns - 1), piece]);
      piece = NaN;
    }
  });
  const top = high > 0 ? high : 1;
  let [line, under, begun, last] = ["", "", null, null];
  const close = () => {
    if (begun !== null) under += `L${last} 40L${begun} 40Z`;
    begun = null;
  };
  for (const [x, value] of points) {
    if (Number.isNaN(value)) {
      close();
      continue;
    }
    last = (x * 300).toFixed(1);
    const place = `${last} ${(38 - (value / top) * 36).toFixed(1)}`;
    line += `${begun === null ? "M" : "L"}${place}`;
    under += `${begun === null ? "M" : "L"}${place}`;
    begun ??= last;
  }
  close();
  const [shade, curve] = svg.children;
  shade.setAttribute("d", under);
  curve.setAttribute("d", line);
  return high === -Infinity ? null : [low, high];
}

export function sparkElement() {
  const name = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(name, "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 300 40");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const kind of ["under", "line"]) {
    const path = document.createElementNS(name, "path");
    path.setAttribute("class", kind);
    svg.append(path);
  }
  return svg;
}

/// The colours of heat maps in the scheme of now.
export function heatColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim().split(/\s+/).map(Number);
  return [read("--heat-ground"), read("--heat")];
}

/// A heat map: a pixel for each column and bucket, the slow ones above.
export function heat(canvas, { bounds, track }, span, [ground, ink]) {
  const [ring, columns] = track.over(span);
  const height = bounds.length;
  if (canvas.width !== columns || canvas.height !== height) {
    canvas.width = columns;
    canvas.height = height;
  }
  let most = 0;
  ring.each(columns, (_, at) => {
    for (let bucket = 0; bucket < height; bucket += 1) most = Math.max(most, ring.data[at + bucket] || 0);
  });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, height);
  const scale = most > 0 ? 1 / Math.log1p(most) : 0;
  ring.each(columns, (index, at) => {
    for (let bucket = 0; bucket < height; bucket += 1) {
      const often = ring.data[at + bucket] || 0;
      const part = often > 0 ? 0.12 + 0.88 * Math.log1p(often) * scale : 0;
      const pixel = 4 * ((height - 1 - bucket) * columns + index);
      for (let colour = 0; colour < 3; colour += 1) {
        image.data[pixel + colour] = ground[colour] + (ink[colour] - ground[colour]) * part;
      }
      image.data[pixel + 3] = 255;
    }
  });
  context.putImageData(image, 0, 0);
}
