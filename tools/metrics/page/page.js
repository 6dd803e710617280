// The page: asks for figures each second, remembers them, and shows what there is. A server with --metrics answers with
// its text; `yonder top --web` answers with the text of the server that it looks at, and with all processes.

import { History, ofProcess, parse } from "./samples.js";
import * as draw from "./draw.js";
import { Limits } from "./limits.js";
import { health, memory, nodes, tenants } from "./sections.js";

const EVERY_MS = 1000;
const PATIENCE_MS = 5000;
const by = (id) => document.getElementById(id);
const at_top = document.documentElement.dataset.source === "top";

/// What has a curve, if the server counts it: counters as rates, gauges as they are.
const CURVES = [
  ["yonder_requests_total", "Requests", draw.perSecond],
  ["yonder_requests_in_service", "Requests in service", draw.count],
  ["yonder_kv_gets_total", "Keys asked for", draw.perSecond],
  ["yonder_kv_sets_total", "Items stored", draw.perSecond],
  ["yonder_major_faults_total", "Major faults", draw.perSecond],
  ["yonder_minor_faults_total", "Minor faults", draw.perSecond],
  ["yonder_fetches_in_flight", "Fetches in flight", draw.count],
  ["yonder_fetched_bytes_total", "Fetched", draw.bytesPerSecond],
  ["yonder_written_bytes_total", "Written back", draw.bytesPerSecond],
  ["yonder_fetch_retries_total", "Reads asked again", draw.perSecond],
  ["yonder_paging_errors_total", "Paging errors", draw.perSecond],
  ["yonder_mending_bytes_per_second", "Mending", draw.bytesPerSecond],
  ["yonder_node_reads_total", "Reads served", draw.perSecond],
  ["yonder_node_writes_total", "Writes served", draw.perSecond],
  ["yonder_node_read_bytes_total", "Bytes read", draw.bytesPerSecond],
  ["yonder_node_written_bytes_total", "Bytes written", draw.bytesPerSecond],
  ["yonder_node_errors_total", "Errors answered", draw.perSecond],
  ["yonder_node_connections", "Connections", draw.count],
  ["yonder_controller_regions", "Regions", draw.count],
  ["yonder_controller_regions_moving", "Regions that move", draw.count],
];
const TRACKS = CURVES.map(([name]) => {
  const read = name.endsWith("_total") ? (of) => of.rate(name) : (of) => of.value(name) ?? NaN;
  return { name, read };
});

class Page {
  constructor() {
    this.history = new History(TRACKS);
    this.span = "fine";
    this.is_paused = false;
    this.subject = "server";
    this.key = takeKey();
    this.cards = new Map();
    this.figures = new Map();
    this.limits = new Limits((change) => this.ask("/api/set", change));
    by("span").addEventListener("change", (event) => {
      this.span = event.target.value;
      this.show();
    });
    by("pause").addEventListener("click", () => {
      this.is_paused = !this.is_paused;
      by("pause").setAttribute("aria-pressed", this.is_paused);
      if (!this.is_paused) this.show();
    });
    by("subject").addEventListener("change", (event) => {
      this.subject = event.target.value;
      this.history = new History(TRACKS);
      this.figures.clear();
      by("heats").replaceChildren();
      for (const section of document.querySelectorAll("main section:not(#processes)")) section.hidden = true;
    });
    by("all-details").addEventListener("toggle", () => this.showAll());
  }

  async ask(path, body) {
    const asked = { cache: "no-store", headers: {}, signal: AbortSignal.timeout(PATIENCE_MS) };
    if (this.key) asked.headers.Authorization = `Bearer ${this.key}`;
    if (body) {
      asked.method = "POST";
      asked.headers["Content-Type"] = "application/json";
      asked.body = JSON.stringify(body);
    }
    return fetch(path, asked);
  }

  async look() {
    try {
      if (at_top) await this.lookAtTop();
      else await this.lookAtServer();
    } catch (error) {
      const why = error.name === "TimeoutError" ? "no answer for 5 seconds" : "it cannot be reached";
      this.state(`No figures: ${why}. This page asks again each second.`, true);
    }
    setTimeout(() => this.look(), EVERY_MS - (Date.now() % EVERY_MS) || EVERY_MS);
  }

  async lookAtServer() {
    const answer = await this.ask("/metrics");
    const text = await answer.text();
    if (!answer.ok) return this.state(`No figures: ${text.trim()}`, true);
    this.state(`Live from ${location.host}`);
    this.take(parse(text));
  }

  async lookAtTop() {
    if (!this.key) {
      return this.state("Open the address with its key, as `yonder top --web` has printed it.", true);
    }
    const answer = await this.ask("/api/look");
    const look = await answer.json();
    if (!answer.ok) return this.state(look.error, true);
    this.limits.take(look.processes, Date.now());
    this.subjects(look);
    if (this.subject === "server") {
      if (look.server?.text) {
        this.state(`Live from ${look.server.address}`);
        this.take(parse(look.server.text));
      } else {
        this.state(look.server ? `No figures: ${look.server.trouble}` : "No process has far memory", true);
      }
      return;
    }
    const process = look.processes.find(({ id }) => id === this.subject);
    if (!process) return this.state("The process is over. Choose another one.", true);
    this.state(`Live from process ${process.pid}${process.answers ? "" : ", which does not answer"}`, !process.answers);
    if (process.answers) this.take(ofProcess(process.stats));
  }

  /// What can be looked at: the server, and all processes.
  subjects({ server, processes }) {
    const subjects = server ? [["server", `server at ${server.address}`]] : [];
    for (const { id, pid, command } of processes) subjects.push([id, `process ${pid}: ${command.slice(0, 40)}`]);
    const select = by("subject");
    if (select.dataset.of !== JSON.stringify(subjects)) {
      select.dataset.of = JSON.stringify(subjects);
      select.replaceChildren(...subjects.map(([value, text]) => draw.make("option", { value }, text)));
      const is_there = subjects.some(([value]) => value === this.subject);
      const may_change = this.subject === "server" || !this.history.at;
      if (!is_there && subjects.length && may_change) this.subject = subjects[0][0];
      select.value = this.subject;
    }
    by("subject-label").hidden = subjects.length < 2;
  }

  state(text, is_lost = false) {
    draw.say(by("state"), text);
    by("state").classList.toggle("lost", is_lost);
  }

  take(scrape, millis = Date.now()) {
    if (this.history.add(scrape, millis) && !this.is_paused) this.show();
  }

  show() {
    if (!this.history.latest) return;
    this.showRates();
    this.showLatency();
    health(this.history);
    memory(this.history);
    nodes(this.history);
    tenants(this.history);
    by("all").hidden = this.history.latest.help.size === 0;
    this.showAll();
  }

  showRates() {
    let shown = 0;
    for (const [name, title, text] of CURVES) {
      const value = this.history.value(name);
      let card = this.cards.get(name);
      if (value === undefined) {
        if (card) card.item.hidden = true;
        continue;
      }
      if (!card) {
        card = this.card(title);
        this.cards.set(name, card);
      }
      shown += 1;
      card.item.hidden = false;
      draw.say(card.value, text(name.endsWith("_total") ? this.history.rate(name) : value));
      const range = draw.spark(card.svg, this.history.tracks.get(name), this.span);
      draw.say(card.range, range ? `${text(range[0])} to ${text(range[1])}` : "no history yet");
    }
    by("rates").hidden = shown === 0;
  }

  card(title) {
    const [value, range] = [draw.make("p", { class: "value" }), draw.make("p", { class: "range" })];
    const svg = draw.sparkElement();
    const item = draw.make("li", {}, draw.make("h3", {}, title), value, svg, range);
    by("cards").append(item);
    return { item, value, range, svg };
  }

  showLatency() {
    const rows = [];
    for (const of of ["fault", "request"]) {
      const stages = new Map();
      for (const { labels, value } of this.history.latest.labelled.get(`yonder_${of}_stage_seconds`) ?? []) {
        stages.set(labels.stage, { ...stages.get(labels.stage), [labels.quantile]: value });
      }
      for (const [stage, at] of stages) {
        const times = ["0.5", "0.9", "0.99", "0.999"].map((quantile) => draw.time(at[quantile]));
        rows.push([`${of}, ${stage}`, ...times]);
        this.showHeat(`${of} ${stage}`, times);
      }
    }
    by("latency").hidden = rows.length === 0;
    draw.fill(by("stages"), rows);
  }

  showHeat(key, times) {
    const heat = this.history.heats.get(key);
    if (!heat) return;
    let figure = this.figures.get(key);
    if (!figure) {
      figure = this.figure(key, heat);
      this.figures.set(key, figure);
    }
    draw.say(figure.numbers, `P50 ${times[0]}, P99 ${times[2]}`);
    draw.say(figure.since, heat.track.since(this.span));
    draw.heat(figure.canvas, heat, this.span, draw.heatColours());
  }

  figure(key, heat) {
    const { make } = draw;
    const canvas = make("canvas", { role: "img", "aria-label": `Heat map of ${key}: the table has its percentiles` });
    const scale = make("div", { class: "scale", "aria-hidden": "true" });
    for (const [bound, text] of [[1e-6, "1 µs"], [1e-4, "100 µs"], [1e-2, "10 ms"], [1, "1 s"]]) {
      const bucket = heat.bounds.findIndex((upper) => upper >= bound);
      if (bucket < 0) continue;
      const mark = make("span", {}, text);
      mark.style.bottom = `${(100 * (bucket + 0.5)) / heat.bounds.length}%`;
      scale.append(mark);
    }
    const [numbers, since] = [make("span", { class: "numbers" }), make("span")];
    const when = make("div", { class: "when", "aria-hidden": "true" }, since, make("span", {}, "now"));
    const caption = make("figcaption", {}, make("span", { class: "stage" }, key.replace(" ", ", ")), numbers);
    by("heats").append(make("figure", {}, caption, make("div", { class: "heat" }, scale, canvas, when)));
    return { canvas, numbers, since };
  }

  showAll() {
    if (!by("all-details").open || !this.history.latest) return;
    const { plain, labelled, help, counters } = this.history.latest;
    const rows = [...plain].map(([name, value]) => [
      name,
      name.endsWith("_bytes") ? draw.bytes(value) : draw.count(value),
      counters.has(name) ? draw.perSecond(this.history.rate(name)) : "",
      help.get(name) ?? "",
    ]);
    for (const [name, values] of labelled) {
      if (name.endsWith("_bucket") || name.endsWith("_sum") || name.endsWith("_count")) continue;
      for (const { labels, value } of values.slice(0, 20)) {
        const text = Object.entries(labels).map(([key, label]) => `${key}=${label}`).join(", ");
        const unit = name.endsWith("_seconds") ? draw.time : name.endsWith("_bytes") ? draw.bytes : draw.count;
        const shown = unit(value);
        rows.push([`${name} ${text}`, shown, "", help.get(name) ?? ""]);
      }
    }
    draw.fill(by("all-table"), rows);
  }
}

/// The key that came with the address. It stays with the tab, and out of the address, where others see it.
function takeKey() {
  const typed = /^#key=([0-9a-f]+)$/.exec(location.hash);
  if (typed) {
    sessionStorage.setItem("yonder-key", typed[1]);
    history.replaceState(null, "", location.pathname);
  }
  return at_top ? sessionStorage.getItem("yonder-key") : null;
}

const page = new Page();
// For tests, which let a day pass at once.
window.yonder = { page, parse };
page.look();
