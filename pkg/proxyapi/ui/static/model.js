// What is computed of what the APIs say. Nothing here touches the document.

const steps = 60; // most values of a plot

const setLabel = 'cluster.open-cluster-management.io/clusterset';

// clean makes text of clusters safe to read: no control characters, and none that turn
// the direction of what is around them.
export function clean(text, most = 600) {
  const s = typeof text === 'string' ? text : text === null || text === undefined ? '' : String(text);
  const cut = s.length > most ? `${s.slice(0, most)}…` : s;
  return cut.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, '\u00b7');
}

// milliseconds of a duration of Go, such as 1m2.5s or 850µs; null if it is none.
export function milliseconds(text) {
  if (typeof text !== 'string' || !text) return null;
  const units = { h: 3.6e6, m: 6e4, s: 1e3, ms: 1, us: 1e-3, 'µs': 1e-3, 'μs': 1e-3, ns: 1e-6 };
  let sum = 0;
  let rest = text;
  while (rest) {
    const part = rest.match(/^([0-9.]+)(h|ms|m|s|us|µs|μs|ns)/);
    if (!part) return null;
    sum += Number(part[1]) * units[part[2]];
    rest = rest.slice(part[0].length);
  }
  return sum;
}

export function showMilliseconds(ms) {
  if (ms === null) return '–';
  if (ms >= 10_000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return ms >= 10 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(1)} ms`;
}

export function showRate(rate) {
  if (rate === null) return '–';
  if (rate >= 1000) return `${(rate / 1000).toFixed(1)} k/s`;
  if (rate >= 10) return `${rate.toFixed(0)} /s`;
  return rate === 0 ? '0 /s' : rate < 0.1 ? '<0.1 /s' : `${rate.toFixed(1)} /s`;
}

export function showAge(ms) {
  if (ms === null || Number.isNaN(ms)) return '–';
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172_800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

const states = { True: 'available', False: 'away' };

// Fleet keeps what was seen of each cluster since the page was opened.
export class Fleet {
  constructor() {
    this.known = new Map();
  }

  // update takes a list and the time at which it came.
  update(items, now) {
    const gone = new Set(this.known.keys());
    for (const item of items) {
      const name = item?.metadata?.name;
      if (typeof name !== 'string') continue;
      gone.delete(name);
      const c = this.known.get(name) ?? { name, latencies: [], rates: [], counts: new Map() };
      this.known.set(name, c);
      this.observe(c, item, now);
    }
    for (const name of gone) this.known.delete(name);
  }

  observe(c, item, now) {
    const status = item.status ?? {};
    c.labels = item.metadata.labels ?? {};
    c.set = clean(c.labels[setLabel] ?? '', 253);
    c.state = states[status.available] ?? 'unknown';
    c.tunnels = Number.isInteger(status.tunnels) ? status.tunnels : 0;
    c.version = clean(status.version ?? '', 64);
    c.reason = clean(status.reason ?? '', 128);
    c.message = clean(status.message ?? '');
    c.latency = milliseconds(status.latency);
    c.seen = status.lastSeen ? Date.parse(status.lastSeen) : null;
    c.age = c.seen === null ? null : now - c.seen;
    const rate = this.rate(c, status, now);
    if (rate !== undefined) {
      c.rate = rate;
      push(c.rates, rate);
    }
    push(c.latencies, c.latency);
    c.text = `${c.name} ${c.set} ${c.version} ${c.reason}`.toLowerCase();
  }

  // rate is undefined if a replica answered for the first time: its count is one of its
  // own. It goes on with the next answer of that replica.
  rate(c, status, now) {
    const since = String(status.countedSince ?? '');
    const count = Number(status.requests ?? 0);
    const before = c.counts.get(since);
    c.counts.set(since, { count, now });
    if (c.counts.size > 16) c.counts.delete(c.counts.keys().next().value);
    if (!before) return c.rate === undefined ? null : undefined;
    return now > before.now && count >= before.count ? ((count - before.count) * 1000) / (now - before.now) : null;
  }

  all() {
    return [...this.known.values()];
  }

  count() {
    const n = { all: this.known.size, available: 0, away: 0, unknown: 0 };
    for (const c of this.known.values()) n[c.state]++;
    return n;
  }

  sets() {
    return [...new Set(this.all().map((c) => c.set).filter(Boolean))].sort();
  }
}

function push(values, value) {
  values.push(value);
  if (values.length > steps) values.shift();
}

// select returns the clusters that pass a filter: words, a state and a set.
export function select(all, { words, state, set }) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((c) => (!state || c.state === state) && (!set || c.set === set) && wanted.every((w) => c.text.includes(w)));
}

const order = { away: 0, unknown: 1, available: 2 };
const byName = new Intl.Collator('en', { numeric: true }).compare;
const keys = {
  state: (c) => order[c.state], tunnels: (c) => c.tunnels, latency: (c) => c.latency, rate: (c) => c.rate ?? null,
  seen: (c) => (c.state === 'available' ? -1 : c.age),
};
const texts = { name: (c) => c.name, set: (c) => c.set, version: (c) => c.version };

// sort sorts in place. What has no value is last in both directions.
export function sort(list, { column, down }) {
  const sign = down ? -1 : 1;
  const compare = texts[column] ? (a, b) => {
    const [x, y] = [texts[column](a), texts[column](b)];
    return !x || !y ? (y ? 1 : 0) - (x ? 1 : 0) : sign * byName(x, y);
  } : (a, b) => {
    const [x, y] = [keys[column](a), keys[column](b)];
    return x === null || y === null ? (x === null ? 1 : 0) - (y === null ? 1 : 0) : sign * (x - y);
  };
  return list.sort((a, b) => compare(a, b) || byName(a.name, b.name));
}

function matches(selector, labels) {
  const has = (key) => Object.hasOwn(labels, key);
  return Object.entries(selector.matchLabels ?? {}).every(([k, v]) => has(k) && labels[k] === v)
    && (selector.matchExpressions ?? []).every(({ key, operator, values = [] }) => ({
      In: has(key) && values.includes(labels[key]),
      NotIn: !has(key) || !values.includes(labels[key]),
      Exists: has(key),
      DoesNotExist: !has(key),
    })[operator] ?? false);
}

// members are those of the clusters that a view selects, as far as the user may see them.
export function members(view, all) {
  const { clusterSets = [], selector, names = [] } = view.spec?.clusters ?? {};
  if (!clusterSets.length && !selector && !names.length) return all;
  return all.filter((c) => names.includes(c.name) || clusterSets.includes(c.labels[setLabel]) || clusterSets.includes('global')
    || (selector && matches(selector, c.labels)));
}

// terms says what a view selects.
export function terms(view) {
  const { clusterSets = [], selector, names = [] } = view.spec?.clusters ?? {};
  const all = [];
  if (clusterSets.length) all.push(`sets ${clusterSets.join(', ')}`);
  for (const [k, v] of Object.entries(selector?.matchLabels ?? {})) all.push(`${k}=${v}`);
  for (const e of selector?.matchExpressions ?? []) all.push(`${e.key} ${e.operator} ${(e.values ?? []).join(', ')}`.trim());
  if (names.length) all.push(names.length > 5 ? `${names.length} names` : names.join(', '));
  return all.length ? clean(all.join(' · ')) : 'all clusters';
}

export function resources(view) {
  const list = view.spec?.resources ?? [];
  return list.length ? clean(list.map((r) => (r.group ? `${r.resource}.${r.group}` : r.resource)).join(', ')) : 'everything';
}
