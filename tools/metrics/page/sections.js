// Health, memory, nodes and tenants: what of a scrape they are, as tables and sentences.

import * as draw from "./draw.js";

const PAGE = 4096;
const TENANTS_MAX = 20;
/// Conditions of nodes that do not answer.
const AWAY = ["silent", "lost"];
const by = (id) => document.getElementById(id);

/// Sentences about what is wrong; each is one thing that an operator would look after.
function troubles(of) {
  const value = (name) => of.value(name) ?? 0;
  const said = [];
  const say = (is_so, text) => is_so && said.push(text);
  const below = value("yonder_pages_below_protection");
  if (below > 0) {
    const mending = value("yonder_mending_bytes_per_second");
    const left = mending > 0
      ? `mending at ${draw.bytesPerSecond(mending)}, about ${draw.time((below * PAGE) / mending)} are left`
      : "nothing is mended now";
    said.push(`${draw.count(below)} pages are at fewer nodes than was asked for: ${left}.`);
  }
  const late = value("yonder_pages_late");
  const late_max = value("yonder_pages_late_max");
  say(late_max > 0 && late >= 0.9 * late_max, `Writes wait for the disk: ${draw.count(late)} pages are on their way.`);
  say(value("yonder_nodes_slow") > 0, `${draw.count(value("yonder_nodes_slow"))} nodes are slow, and asked last.`);
  say(value("yonder_nodes_left") > 0, `Pages are moved off ${draw.count(value("yonder_nodes_left"))} nodes.`);
  for (const [what, says] of [["silent", "are not connected"], ["lost", "are lost: their leases are over"]]) {
    const many = value(`yonder_controller_nodes_${what}`);
    say(many > 0, `${draw.count(many)} nodes ${says}.`);
  }
  say(of.value("yonder_node_controller_connected") === 0, "This node is not registered at its controller.");
  say(of.rate("yonder_paging_errors_total") > 0, "Accesses end in paging errors: a page cannot be had.");
  say(of.rate("yonder_fetch_retries_total") > 0, "Reads are asked for again: a node or the network is late.");
  const panics = value("yonder_requests_panicked_total");
  say(panics > 0, `${draw.count(panics)} requests have panicked since the start.`);
  const errors = value("yonder_paging_errors_total");
  say(errors > 0 && !(of.rate("yonder_paging_errors_total") > 0),
    `${draw.count(errors)} accesses have ended in paging errors since the start.`);
  return said;
}

export function health(of) {
  const said = troubles(of);
  const bad = said.map((text) => ["bad", `Attention: ${text}`]);
  const lines = bad.length ? bad : [["", "Nothing is wrong, as far as is counted."]];
  const list = by("health-list");
  const now = JSON.stringify(lines);
  if (list.dataset.of !== now) {
    list.dataset.of = now;
    list.replaceChildren(...lines.map(([kind, text]) => draw.make("li", kind ? { class: kind } : {}, text)));
  }
  by("health").hidden = false;
}

const STATES = {
  resident: "Local, mapped",
  standby: "Local, on standby",
  writing: "Local, being written back",
  buffer: "Local, buffers",
  free: "Local, free",
  remote: "Remote",
};

function pages(of) {
  const places = new Map();
  for (const { labels, value } of of.latest.labelled.get("yonder_local_pages") ?? []) places.set(labels.state, value);
  const touched = of.value("yonder_touched_pages");
  if (touched !== undefined) {
    const local = ["resident", "standby", "writing"].reduce((sum, state) => sum + (places.get(state) ?? 0), 0);
    places.set("remote", Math.max(0, touched - local));
  }
  return [...places].map(([kind, value]) => [kind, STATES[kind] ?? kind, value * PAGE]);
}

/// A node's own memory.
function nodeBytes(of) {
  const limit = of.value("yonder_node_limit_bytes");
  if (limit === undefined) return [];
  const [backed, own] = [of.value("yonder_node_backed_bytes") ?? 0, of.value("yonder_node_own_bytes") ?? 0];
  return [["resident", "Pages of tenants", backed], ["buffer", "The node's own", own],
    ["free", "Free", Math.max(0, limit - backed - own)]];
}

/// The memory of a controller's nodes, each by itself.
function clusterBytes(of) {
  const free = new Map();
  for (const { labels, value } of of.latest.labelled.get("yonder_controller_node_free_bytes") ?? []) {
    free.set(labels.node, value);
  }
  const kinds = ["resident", "standby", "writing", "buffer"];
  const all = of.latest.labelled.get("yonder_controller_node_memory_bytes") ?? [];
  const used = all.map(({ labels, value }, at) =>
    [kinds[at % kinds.length], `Used at ${labels.node}`, value - (free.get(labels.node) ?? 0)]);
  const left = [...free.values()].reduce((sum, value) => sum + value, 0);
  return all.length ? [...used, ["free", "Free at all nodes", left]] : [];
}

export function memory(of) {
  const places = [...pages(of), ...nodeBytes(of), ...clusterBytes(of)];
  by("memory").hidden = places.length === 0;
  const sum = places.reduce((sum, [, , bytes]) => sum + bytes, 0) || 1;
  const row = ([kind, name, bytes]) => [[kind, name], draw.bytes(bytes), draw.percent(bytes / sum)];
  draw.fill(by("places"), places.map(row));
  const bar = by("bar");
  while (bar.children.length > places.length) bar.lastChild.remove();
  while (bar.children.length < places.length) bar.append(draw.make("div"));
  places.forEach(([kind, , bytes], at) => {
    bar.children[at].className = kind;
    bar.children[at].style.width = `${(100 * bytes) / sum}%`;
  });
  const [limit, peak] = ["yonder_local_limit_pages", "yonder_local_peak_pages"].map((name) => of.value(name));
  const metadata = of.value("yonder_metadata_bytes");
  const text = limit === undefined ? "" : `Limit of local memory ${draw.bytes(limit * PAGE)}, most ever in use ` +
    `${draw.bytes(peak * PAGE)}; page tables and lists beside it ${draw.bytes(metadata)}.`;
  draw.say(by("limit"), text);
}

const FACTS = [
  ["yonder_places_of_each_page", "Places of each page", draw.count],
  ["yonder_places_needed_of_each_page", "Needed to read it", draw.count],
  ["yonder_pages_below_protection", "Pages at fewer", draw.count],
  ["yonder_mending_bytes_per_second", "Mended", draw.bytesPerSecond],
  ["yonder_places_missing", "Places without a node", draw.count],
  ["yonder_places_given_up_total", "Places given up", draw.count],
  ["yonder_places_replaced_total", "Places found anew", draw.count],
  ["yonder_pages_to_evacuate", "Pages to move off", draw.count],
  ["yonder_nodes_slow", "Slow nodes", draw.count],
  ["yonder_nodes_left", "Nodes being left", draw.count],
  ["yonder_controller_nodes", "Nodes", draw.count],
  ["yonder_controller_nodes_serving", "Nodes that serve", draw.count],
  ["yonder_controller_nodes_draining", "Nodes that drain", draw.count],
  ["yonder_controller_nodes_silent", "Silent nodes", draw.count],
  ["yonder_controller_nodes_lost", "Lost nodes", draw.count],
  ["yonder_controller_regions_moving", "Regions that move", draw.count],
  ["yonder_node_spaces", "Address spaces", draw.count],
  ["yonder_node_controller_connected", "Registered", (value) => (value ? "yes" : "no")],
];

export function nodes(of) {
  const facts = FACTS.filter(([name]) => of.value(name) !== undefined);
  const list = by("protection");
  const names = facts.map(([name]) => name).join();
  if (list.dataset.of !== names) {
    list.dataset.of = names;
    const { make } = draw;
    list.replaceChildren(...facts.map(([, title]) => make("div", {}, make("dt", {}, title), make("dd"))));
  }
  facts.forEach(([name, , text], at) => draw.say(list.children[at].lastChild, text(of.value(name))));
  const rows = nodeRows(of);
  by("node-scroll").hidden = rows.length === 0;
  draw.fill(by("node-table"), rows);
  by("nodes").hidden = facts.length + rows.length === 0;
}

function nodeRows(of) {
  const byNode = (name) => {
    const list = of.latest.labelled.get(`yonder_controller_node_${name}`) ?? [];
    return new Map(list.map(({ labels, value }) => [labels.node, value]));
  };
  const [memory, free, regions] = ["memory_bytes", "free_bytes", "regions"].map(byNode);
  const conditions = of.latest.labelled.get("yonder_controller_node_condition") ?? [];
  return conditions.filter(({ value }) => value === 1).map(({ labels: { node, condition } }) => [
    node,
    condition,
    // What one that does not answer said last is old.
    AWAY.includes(condition) ? "unknown" : draw.bytes((memory.get(node) ?? 0) - (free.get(node) ?? 0)),
    draw.bytes(memory.get(node)),
    draw.count(regions.get(node)),
  ]);
}

export function tenants(of) {
  const read = (scrape, kind, name) => {
    const list = scrape?.labelled.get(`yonder_${kind}_tenant_${name}`) ?? [];
    return new Map(list.map(({ labels, value }) => [labels.tenant, value]));
  };
  const kind = of.latest.labelled.has("yonder_controller_tenant_memory_bytes") ? "controller" : "node";
  const memory = [...read(of.latest, kind, "memory_bytes")].sort(([, one], [, other]) => other - one);
  const counters = ["requests_total", "bytes_total", "shed_total"].map((name) => {
    const [before, now] = [of.before, of.latest].map((scrape) => read(scrape, kind, name));
    return (tenant) => (before.has(tenant) && now.has(tenant) && now.get(tenant) >= before.get(tenant)
      ? (now.get(tenant) - before.get(tenant)) / of.seconds : NaN);
  });
  const rows = memory.slice(0, TENANTS_MAX).map(([tenant, bytes]) => [
    tenant,
    draw.perSecond(counters[0](tenant)),
    draw.bytesPerSecond(counters[1](tenant)),
    draw.perSecond(counters[2](tenant)),
    draw.bytes(bytes),
  ]);
  by("tenants").hidden = rows.length === 0;
  draw.fill(by("tenant-table"), rows);
  const more = memory.length - rows.length;
  draw.say(by("tenants-more"), more > 0 ? `And ${more} more, with less memory.` : "");
}
