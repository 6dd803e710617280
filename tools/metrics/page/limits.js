// Processes with far memory, and the form that changes their settings. `yonder top --web` passes a change on as
// `yonder ctl set` would.

import * as draw from "./draw.js";
import { increase } from "./samples.js";

const KINDS = { bytes: "a size, such as 64MiB", ns: "a time, such as 500ms" };
const RATES = ["worked_ns", "stalled_ns", "major_faults", "fetched_bytes", "written_bytes"];
const by = (id) => document.getElementById(id);

export class Limits {
  /// `change` sends one: an object with the process, the setting and the value.
  constructor(change) {
    this.change = change;
    this.processes = [];
    this.before = new Map();
    by("change").addEventListener("submit", (event) => {
      event.preventDefault();
      this.apply();
    });
    by("change-process").addEventListener("change", () => this.names());
    by("change-name").addEventListener("change", () => this.hint());
  }

  /// Takes all processes as they are now.
  take(processes, millis) {
    this.processes = processes;
    by("processes").hidden = false;
    const before = new Map();
    const rows = processes.map((process) => {
      before.set(process.id, { stats: process.stats, millis });
      return this.row(process, this.before.get(process.id), millis);
    });
    this.before = before;
    draw.fill(by("process-table"), rows);
    const options = processes.map(({ id, pid, command }) => [id, `${pid}: ${command.slice(0, 40)}`]);
    by("change").hidden = options.length === 0;
    choices(by("change-process"), options);
    this.names();
  }

  row({ pid, command, answers, stats }, before, millis) {
    const seconds = before ? (millis - before.millis) / 1000 : 0;
    const [worked, stalled, misses, fetched, written] = RATES.map((name) =>
      (seconds > 0 ? increase(before.stats[name] ?? 0, stats[name] ?? 0) / seconds : NaN));
    return [
      String(pid),
      answers ? command : `${command} (does not answer)`,
      draw.bytes(stats.touched_bytes),
      draw.bytes(stats.charged_bytes),
      draw.bytes(stats.local_bytes),
      draw.bytes(stats.soft_limit_bytes),
      worked + stalled > 0 ? draw.percent(stalled / Math.max(worked, 1)) : "–",
      draw.perSecond(misses),
      draw.bytesPerSecond(fetched),
      draw.bytesPerSecond(written),
    ];
  }

  chosen() {
    return this.processes.find(({ id }) => id === by("change-process").value);
  }

  setting() {
    return this.chosen()?.settings.find(({ name }) => name === by("change-name").value);
  }

  names() {
    const settings = this.chosen()?.settings ?? [];
    choices(by("change-name"), settings.map(({ name }) => [name, name]));
    this.hint();
  }

  hint() {
    const setting = this.setting();
    const kind = KINDS[setting?.unit] ?? "a whole number, such as 512";
    draw.say(by("change-hint"), setting ? `Now ${setting.value}. Type ${kind}, or none for no limit.` : "");
  }

  async apply() {
    const [process, setting, said] = [this.chosen(), this.setting(), by("change-said")];
    if (!process || !setting) return;
    let [text, is_bad] = ["", false];
    try {
      const value = by("change-value").value.trim();
      const answer = await this.change({ id: process.id, name: setting.name, value });
      const reply = await answer.json();
      is_bad = reply.error !== undefined;
      text = is_bad ? `Not changed: ${reply.error}` : `${reply.name} of process ${process.pid} is now ${reply.value}.`;
    } catch {
      [text, is_bad] = ["Not changed: there was no answer.", true];
    }
    said.classList.toggle("bad", is_bad);
    draw.say(said, text);
  }
}

/// Makes a list of choices, if they are others than before. What was chosen stays chosen.
function choices(select, options) {
  const now = JSON.stringify(options);
  if (select.dataset.of === now) return;
  const chosen = select.value;
  select.dataset.of = now;
  select.replaceChildren(...options.map(([value, text]) => draw.make("option", { value }, text)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}
