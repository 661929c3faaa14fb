// The table of clusters. Rows stay and change; what has not changed is not touched.
import { newPlot, draw } from './plot.js';
import { clean, showAge, showMilliseconds, showRate } from './model.js';

const columns = [
  ['name', 'Cluster'], ['state', 'State'], ['latency', 'Latency'], ['rate', 'Requests'],
  ['tunnels', 'Connections'], ['version', 'Version'], ['set', 'Set'], ['seen', 'Last seen'],
];

const words = { available: 'Available', away: 'Away', unknown: 'Unknown' };

export function element(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function set(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// walk has keys lead from row to row, and Enter or a click toggle one.
export function walk(body, toggle) {
  body.addEventListener('click', (e) => {
    const row = e.target.closest('tr[aria-expanded]');
    if (row && !getSelection().toString()) toggle(row);
  });
  body.addEventListener('keydown', (e) => {
    const row = e.target.closest('tr[aria-expanded]');
    if (!row) return;
    const rows = [...body.querySelectorAll('tr[aria-expanded]')];
    const at = rows.indexOf(row);
    const to = { ArrowDown: rows[at + 1], j: rows[at + 1], ArrowUp: rows[at - 1], k: rows[at - 1], Home: rows[0], End: rows.at(-1) }[e.key];
    if (e.key === 'Enter' || e.key === ' ') toggle(row);
    else if (to) {
      row.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    } else return;
    e.preventDefault();
  });
}

export class Board {
  // sorted is called when a column's header is used.
  constructor(table, sorted) {
    this.table = table;
    this.body = table.tBodies[0];
    this.rows = new Map();
    this.order = { column: 'state', down: false };
    this.heads = columns.map(([column, title]) => {
      const th = element('th', `c-${column}`);
      th.scope = 'col';
      const button = element('button', 'sort', title);
      button.addEventListener('click', () => {
        const { order } = this;
        this.order = { column, down: order.column === column ? !order.down : column === 'latency' || column === 'rate' || column === 'seen' };
        sorted();
      });
      th.append(button);
      return th;
    });
    table.tHead.rows[0].append(...this.heads);
    walk(this.body, (tr) => this.toggle(tr));
  }

  show(list, now) {
    columns.forEach(([column], i) => {
      const sort = this.order.column !== column ? 'none' : this.order.down ? 'descending' : 'ascending';
      if (this.heads[i].getAttribute('aria-sort') !== sort) this.heads[i].setAttribute('aria-sort', sort);
    });
    const focused = document.activeElement?.closest?.('tr');
    let at = this.body.firstElementChild;
    const shown = new Set();
    for (const c of list) {
      let row = this.rows.get(c.name);
      if (!row) {
        row = newRow(c.name);
        this.rows.set(c.name, row);
      }
      shown.add(c.name);
      fill(row, c, now);
      if (at === row.tr) at = at.nextElementSibling;
      else this.body.insertBefore(row.tr, at);
    }
    for (const [name, row] of this.rows) {
      if (shown.has(name)) continue;
      row.tr.remove();
      this.rows.delete(name);
    }
    // One row can be reached with the Tab key, and the arrows lead to the others.
    const current = this.body.querySelector('tr[tabindex="0"]') ?? this.body.firstElementChild;
    current?.setAttribute('tabindex', '0');
    if (focused?.isConnected && document.activeElement === document.body) focused.focus();
  }

  toggle(tr) {
    for (const row of this.rows.values()) {
      if (row.tr !== tr) continue;
      row.open = !row.open;
      tr.setAttribute('aria-expanded', String(row.open));
      row.more.hidden = !row.open;
    }
  }
}

function newRow(name) {
  const tr = element('tr');
  tr.tabIndex = -1;
  tr.setAttribute('aria-expanded', 'false');
  const cells = {};
  for (const [column, title] of columns) {
    const cell = element(column === 'name' ? 'th' : 'td', `c-${column}`);
    if (column === 'name') cell.scope = 'row';
    cell.dataset.title = title;
    cells[column] = cell;
    tr.append(cell);
  }
  const row = { tr, cells, open: false };
  row.name = element('span', 'name', clean(name, 253));
  row.more = element('dl', 'more');
  row.more.hidden = true;
  cells.name.append(row.name, row.more);
  row.dot = element('span', 'dot');
  row.dot.setAttribute('aria-hidden', 'true');
  row.state = element('span', 'state');
  row.why = element('span', 'why');
  cells.state.append(row.dot, row.state, row.why);
  for (const column of ['latency', 'rate']) {
    row[column] = element('span', 'figure');
    row[`${column}Plot`] = newPlot();
    cells[column].append(row[column], row[`${column}Plot`]);
  }
  return row;
}

function fill(row, c, now) {
  if (row.tr.dataset.state !== c.state) row.tr.dataset.state = c.state;
  set(row.state, words[c.state]);
  const away = c.state !== 'available';
  set(row.why, away ? c.message || c.reason : '');
  set(row.latency, showMilliseconds(c.latency));
  set(row.rate, showRate(c.rate ?? null));
  if (row.drawn !== now) {
    row.drawn = now;
    draw(row.latencyPlot, c.latencies);
    draw(row.ratePlot, c.rates);
  }
  set(row.cells.tunnels, String(c.tunnels));
  set(row.cells.version, c.version || '–');
  set(row.cells.set, c.set || '–');
  set(row.cells.seen, away ? (c.age === null ? 'never' : `${showAge(c.age)} ago`) : 'now');
  details(row, c, away);
}

// details are what has no column.
function details(row, c, away) {
  const list = [];
  if (away && c.reason) list.push(['Reason', c.reason]);
  if (away && c.message) list.push(['Message', c.message]);
  if (away) list.push(['Look at', `kubectl clusterproxy check ${c.name}`]);
  const known = c.latencies.filter((v) => v !== null);
  if (known.length) list.push(['Latency', `${showMilliseconds(Math.min(...known))} to ${showMilliseconds(Math.max(...known))} since the page was opened`]);
  for (const [key, value] of Object.entries(c.labels).slice(0, 64)) list.push([clean(key, 317), clean(value, 63)]);
  const text = JSON.stringify(list);
  if (row.details === text) return;
  row.details = text;
  row.more.replaceChildren(...list.flatMap(([term, value]) => [element('dt', '', term), element('dd', '', value)]));
}

// fillTable writes a table that has no plots.
export function fillTable(table, titles, rows) {
  table.tHead.rows[0].replaceChildren(...titles.map((title) => {
    const th = element('th', '', clean(title, 64));
    th.scope = 'col';
    return th;
  }));
  table.tBodies[0].replaceChildren(...rows.map((cells) => {
    const tr = element('tr');
    tr.append(...cells.map((cell, i) => {
      const td = element(i ? 'td' : 'th', i ? '' : 'name', clean(cell) || '–');
      if (!i) td.scope = 'row';
      td.dataset.title = clean(titles[i], 64);
      return td;
    }));
    return tr;
  }));
}
