// Figures as they come, and what is remembered of them. Nothing here grows: each track has room for five minutes by
// seconds and for a day by minutes, from its beginning, and tracks are those of a list.

const FINE = 300;
const DAY = 1440;
const HOUR = 60;
const SECONDS = 60;
// Fewer columns are not shown, however short the history is.
const COLUMNS_MIN = 60;
// A look that is late by so many seconds has no hole before it.
const LATE_MAX = 5;
const HEATS_MAX = 16;

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;

function unescaped(text) {
  return text.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter));
}

function number(text) {
  return text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text);
}

/// What a text of Prometheus' format says: values of names without labels, and lists of those with labels.
export function parse(text) {
  const scrape = { plain: new Map(), labelled: new Map(), help: new Map(), counters: new Set() };
  for (const line of text.split("\n")) {
    if (line.startsWith("# HELP ")) {
      const at = line.indexOf(" ", 7);
      scrape.help.set(line.slice(7, at), line.slice(at + 1));
    }
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (!found) continue;
    const [, name, labels, value] = found;
    if (name.endsWith("_total")) scrape.counters.add(name);
    if (labels === undefined) {
      scrape.plain.set(name, number(value));
      continue;
    }
    const of = {};
    for (const [, key, quoted] of labels.matchAll(LABEL)) of[key] = unescaped(quoted);
    if (!scrape.labelled.has(name)) scrape.labelled.set(name, []);
    scrape.labelled.get(name).push({ labels: of, value: number(value) });
  }
  return scrape;
}

/// What the counters of a process, as `yonder ctl stats` has them, are in that format.
export function ofProcess(stats) {
  const scrape = { plain: new Map(), labelled: new Map(), help: new Map(), counters: new Set() };
  const pages = (name) => (stats[name] ?? 0) / 4096;
  for (const [name, stat] of [
    ["yonder_major_faults_total", "major_faults"], ["yonder_minor_faults_total", "minor_faults"],
    ["yonder_fetched_bytes_total", "fetched_bytes"], ["yonder_written_bytes_total", "written_bytes"],
    ["yonder_fetches_in_flight", "in_flight"], ["yonder_paging_errors_total", "paging_errors"],
    ["yonder_metadata_bytes", "metadata_bytes"],
  ]) {
    scrape.plain.set(name, stats[stat] ?? 0);
    if (name.endsWith("_total")) scrape.counters.add(name);
  }
  scrape.plain.set("yonder_touched_pages", pages("touched_bytes"));
  scrape.plain.set("yonder_local_limit_pages", pages("local_bytes"));
  scrape.plain.set("yonder_local_peak_pages", pages("peak_bytes"));
  const [resident, standby, writing] = ["resident_bytes", "standby_bytes", "writing_bytes"].map(pages);
  const buffer = Math.max(0, pages("charged_bytes") - resident - standby - writing);
  const free = Math.max(0, pages("local_bytes") - pages("charged_bytes"));
  const states = { resident, standby, writing, buffer, free };
  const list = Object.entries(states).map(([state, value]) => ({ labels: { state }, value }));
  scrape.labelled.set("yonder_local_pages", list);
  return scrape;
}

/// How much a counter has grown. One that is lower than before has started afresh from zero.
export function increase(before, now) {
  return now < before ? now : now - before;
}

/// The last values of one thing, as many as there is room for.
class Ring {
  constructor(columns, width = 1) {
    this.columns = columns;
    this.width = width;
    this.data = new Float32Array(columns * width).fill(NaN);
    this.next = 0;
    this.count = 0;
  }

  push(values) {
    this.data.set(values, this.next * this.width);
    this.next = (this.next + 1) % this.columns;
    this.count = Math.min(this.count + 1, this.columns);
  }

  /// Calls with each of the last `count` columns, the oldest first.
  each(count, call) {
    for (let index = 0; index < count; index += 1) {
      const column = (this.next + this.columns - count + index) % this.columns;
      call(index, column * this.width);
    }
  }
}

/// Values of one thing, or of several at once, by seconds and by minutes. A minute is the mean of its seconds.
class Track {
  constructor(width = 1) {
    this.fine = new Ring(FINE, width);
    this.day = new Ring(DAY, width);
    this.sums = new Float32Array(width);
    this.known = 0;
    this.seconds = 0;
    this.hole = new Float32Array(width).fill(NaN);
    this.mean = new Float32Array(width);
  }

  push(values) {
    const is_known = !Number.isNaN(values[0]);
    this.fine.push(values);
    if (is_known) {
      this.known += 1;
      for (let at = 0; at < this.sums.length; at += 1) this.sums[at] += values[at];
    }
    this.seconds += 1;
    if (this.seconds < SECONDS) return;
    for (let at = 0; at < this.sums.length; at += 1) {
      this.mean[at] = this.known ? this.sums[at] / this.known : NaN;
    }
    this.day.push(this.mean);
    this.sums.fill(0);
    this.known = 0;
    this.seconds = 0;
  }

  /// The ring and the number of its columns that are shown for a span of time: as many as there are, at most.
  over(span) {
    const ring = span === "fine" ? this.fine : this.day;
    return [ring, span === "hour" ? HOUR : Math.max(COLUMNS_MIN, ring.count)];
  }

  /// How long ago the first of them is.
  since(span) {
    const [, columns] = this.over(span);
    if (span === "fine") return columns < 120 ? `${columns} s ago` : `${Math.round(columns / 60)} min ago`;
    return columns < 120 ? `${columns} min ago` : `${Math.round(columns / 60)} h ago`;
  }
}

/// Everything that is remembered of one server or process. `tracks` says of what: names with `read`, which makes a
/// value of two scrapes and the seconds between them.
export class History {
  constructor(tracks) {
    this.reads = tracks;
    this.tracks = new Map(tracks.map(({ name }) => [name, new Track()]));
    this.heats = new Map();
    this.latest = null;
    this.before = null;
    this.at = null;
    this.seconds = 0;
    this.one = new Float32Array(1);
  }

  /// Takes a scrape of a moment, in milliseconds. False if the second before has one already.
  add(scrape, millis) {
    const second = Math.floor(millis / 1000);
    const passed = this.at === null ? 1 : second - Math.floor(this.at / 1000);
    if (passed < 1) return false;
    this.before = this.latest;
    this.seconds = this.at === null ? 0 : (millis - this.at) / 1000;
    this.latest = scrape;
    this.at = millis;
    const holes = Math.min(passed - 1, DAY * SECONDS);
    for (const { name, read } of this.reads) {
      const value = this.before ? read(this) : NaN;
      const track = this.tracks.get(name);
      this.fill(track, holes, value);
      this.one[0] = value;
      track.push(this.one);
    }
    this.addHeats(holes);
    return true;
  }

  fill(track, holes, value) {
    this.one[0] = holes < LATE_MAX ? value : NaN;
    for (let hole = 0; hole < holes; hole += 1) track.push(this.one);
  }

  addHeats(holes) {
    for (const of of ["fault", "request"]) {
      const name = `yonder_${of}_latency_seconds_bucket`;
      const [now, before] = [this.latest, this.before].map((scrape) => buckets(scrape, name));
      for (const [stage, counts] of now) {
        const key = `${of} ${stage}`;
        const bounds = counts.map(([bound]) => bound);
        let heat = this.heats.get(key);
        if (!heat && this.heats.size >= HEATS_MAX) continue;
        if (!heat || heat.bounds.length !== bounds.length) {
          heat = { bounds, track: new Track(bounds.length), row: new Float32Array(bounds.length) };
          this.heats.set(key, heat);
        }
        const earlier = before.get(stage);
        each_bucket(heat.row, counts, earlier, this.seconds);
        for (let hole = 0; hole < holes; hole += 1) {
          heat.track.push(holes < LATE_MAX ? heat.row : heat.track.hole);
        }
        heat.track.push(heat.row);
      }
    }
  }

  value(name) {
    return this.latest?.plain.get(name);
  }

  /// How much a counter grows each second.
  rate(name) {
    const [before, now] = [this.before?.plain.get(name), this.latest?.plain.get(name)];
    return before === undefined || now === undefined ? NaN : increase(before, now) / this.seconds;
  }
}

/// Cumulative counts of each stage, as pairs of bound and count, the lowest bound first.
function buckets(scrape, name) {
  if (!scrape) return new Map();
  scrape.buckets ??= new Map();
  if (scrape.buckets.has(name)) return scrape.buckets.get(name);
  const stages = new Map();
  scrape.buckets.set(name, stages);
  for (const { labels, value } of scrape.labelled.get(name) ?? []) {
    if (!stages.has(labels.stage)) stages.set(labels.stage, []);
    stages.get(labels.stage).push([number(labels.le), value]);
  }
  return stages;
}

/// How often each bucket was hit in a second.
function each_bucket(row, counts, earlier, seconds) {
  if (!earlier || earlier.length !== counts.length || !seconds) {
    row.fill(NaN);
    return;
  }
  const is_afresh = counts.at(-1)[1] < earlier.at(-1)[1];
  let below = 0;
  counts.forEach(([, count], at) => {
    const until = is_afresh ? count : Math.max(0, count - earlier[at][1]);
    row[at] = Math.max(0, until - below) / seconds;
    below = until;
  });
}
