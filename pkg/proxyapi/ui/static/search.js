// The search of the fleet index: a query, what it finds, and counts that narrow it.
import * as api from './api.js';
import { element, walk } from './board.js';
import { clean, showAge } from './model.js';
import { basis, cells, command, fragment, has, join, searchable, showTime, term, toggle, viewAll } from './query.js';

const page = 100; // objects of one answer
const most = 2000; // that are shown
const fewCounts = 8;
const fewCells = 2;
const titles = ['Cluster', 'Kind', 'Namespace', 'Name', 'State', 'More', 'Age'];
const facets = [['cluster', 'Cluster'], ['kind', 'Kind'], ['status', 'State']];
const examples = [
  ['log4j', 'a word in names, labels, images, owners, nodes and what kubectl prints'],
  ['kind:pod status:CrashLoopBackOff,Error', 'one of several values of a key'],
  ['label:app=web namespace:!kube-*', 'a label, and what must not be'],
  ['image:nginx:1.25 cluster:eu-*', 'an image, and the beginning of a name'],
];

const $ = (id) => document.getElementById(id);
const number = (n) => Number(n).toLocaleString('en');

export class Search {
  // refused is called with the error of a search whose user is not known any more.
  constructor(refused) {
    this.refused = refused;
    this.view = viewAll;
    this.body = $('hits').tBodies[0];
    $('hits').tHead.rows[0].append(...titles.map((title) => {
      const th = element('th', `c-${title.toLowerCase()}`, title);
      th.scope = 'col';
      return th;
    }));
    this.facets = new Map(facets.map(([key, title]) => {
      const all = element('div', 'facet');
      $('facets').append(all);
      return [key, { key, title, all, counts: [], total: 0, unshown: 0, open: false }];
    }));
    $('examples').append(...examples.flatMap(([query, meaning]) => {
      const button = element('button', 'example', query);
      button.addEventListener('click', () => this.ask(query));
      const term = element('dt');
      term.append(button);
      return [term, element('dd', 'help', meaning)];
    }));
    walk(this.body, (tr) => this.toggle(tr));
    $('search-form').addEventListener('submit', (e) => {
      e.preventDefault();
      this.ask($('query').value);
    });
    $('view').addEventListener('change', () => {
      if (this.query === null) this.view = $('view').value;
      else this.ask($('query').value, $('view').value);
    });
    $('more-hits').addEventListener('click', () => this.next());
    this.forget();
  }

  // offer lets the user choose among views. Without one that they may see it is the chart's.
  offer(views) {
    const names = searchable(views);
    if (names.length && !names.includes(this.view) && this.query === null) [this.view] = names;
    const shown = names.includes(this.view) ? names : [this.view, ...names];
    const choice = $('view');
    choice.hidden = shown.length < 2;
    if ([...choice.options].map((o) => o.value).join('\n') !== shown.join('\n')) {
      choice.replaceChildren(...shown.map((name) => {
        const option = element('option', '', `in view ${name}`);
        option.value = name;
        return option;
      }));
    }
    choice.value = this.view;
    this.views = views;
  }

  // forget forgets the user and all that they saw.
  forget() {
    this.stop();
    this.query = null;
    this.view = viewAll;
    this.views = [];
    this.fail('');
    this.clear();
    this.clearCounts();
    this.show();
  }

  // clear removes what was found. Counts stay until there are others, and with them the focus.
  clear() {
    this.hits = [];
    this.total = null;
    this.found = {};
    this.continues = '';
    this.body.replaceChildren();
  }

  clearCounts() {
    for (const facet of this.facets.values()) Object.assign(facet, { counts: [], total: 0, unshown: 0, open: false });
  }

  // fragment is that of the search which is shown.
  get fragment() {
    return this.query === null ? '#search' : fragment(this.view, this.query);
  }

  // follow shows the search of a link.
  follow({ view, query }) {
    if (query === null) return;
    history.replaceState(null, '', fragment(view, query));
    if (query !== this.query || view !== this.view) this.ask(query, view);
  }

  stop() {
    this.under?.abort();
    this.under = null;
  }

  // begin ends the request before, and returns the signal of the next ones.
  begin() {
    this.stop();
    this.under = new AbortController();
    this.fail('');
    $('search').setAttribute('aria-busy', 'true');
    return this.under.signal;
  }

  // ask searches.
  async ask(query, view = this.view) {
    this.query = query.trim();
    this.view = view;
    $('query').value = this.query;
    this.offer(this.views);
    if (location.hash !== this.fragment) history.pushState(null, '', this.fragment);
    const signal = this.begin();
    $('found').textContent = 'Searching …';
    const began = performance.now();
    try {
      const answer = await api.search(this.view, { q: this.query, limit: page }, signal);
      if (signal.aborted) return;
      this.took = performance.now() - began;
      this.answered = Date.now();
      this.clear();
      this.take(answer);
      if (!this.hits.length) this.clearCounts();
      for (const facet of this.hits.length ? this.facets.values() : []) {
        const counted = await api.search(this.view, { q: this.query, countBy: facet.key }, signal);
        if (signal.aborted) return;
        const counts = (counted.counts ?? []).map((c) => ({ value: c.values?.[0] ?? '', n: c.n }));
        Object.assign(facet, { counts, total: counted.total, unshown: counted.left ?? 0, open: false });
        this.total = counted.total;
        this.show();
      }
    } catch (e) {
      if (signal.aborted) return;
      this.lose(e);
    }
    this.end();
  }

  // next shows more of what was found.
  async next() {
    const signal = this.begin();
    try {
      const answer = await api.search(this.view, { q: this.query, limit: page, continue: this.continues }, signal);
      if (signal.aborted) return;
      this.take(answer);
    } catch (e) {
      if (signal.aborted) return;
      if (e.code === 401) this.refused(e);
      else this.fail(e.code === 410 ? 'The list has changed too much to go on with it. Search again.' : e.message);
    }
    this.end();
  }

  end() {
    this.under = null;
    this.show();
  }

  // lose shows why there is no answer.
  lose(e) {
    this.clear();
    this.clearCounts();
    if (e.code === 401) this.refused(e);
    else if (e.code === 404 && /fleet index/.test(e.message)) {
      this.fail('There is no index on this hub, so nothing can be searched. An administrator installs one:', 'helm upgrade cluster-proxy … --reset-then-reuse-values --set fleetIndex.enabled=true');
    } else if (e.code === 403) this.fail(`You may not search here. Ask for ClusterRole cluster-proxy-viewer on the hub. ${e.message}`);
    else this.fail(e.message);
  }

  fail(text, how) {
    const p = $('search-failure');
    p.hidden = !text;
    p.textContent = clean(text);
    if (how) p.append(element('code', 'how', how));
    $('query').setAttribute('aria-invalid', String(Boolean(text)));
  }

  // take adds a page of an answer.
  take(answer) {
    const hits = Array.isArray(answer.hits) ? answer.hits : [];
    this.found = join(this.found, answer);
    this.continues = answer.continue ?? '';
    const rows = hits.map((hit) => newHit(hit, this.answered));
    if (!this.hits.length && rows.length) rows[0].tabIndex = 0;
    this.body.append(...rows);
    this.hits.push(...hits);
    this.show();
  }

  show() {
    const asked = this.query !== null && this.answered && $('search-failure').hidden;
    $('examples').hidden = this.query !== null;
    $('results').hidden = !this.hits.length;
    $('search').setAttribute('aria-busy', String(Boolean(this.under)));
    document.querySelector('#tab-search .count').textContent = this.total === null ? '' : number(this.total);
    const { short, lines } = basis(this.found, this.answered);
    $('basis').hidden = !lines.length;
    $('basis').firstElementChild.textContent = `The answer says less than the clusters have now: ${short}`;
    $('basis').lastElementChild.replaceChildren(...lines.map((line) => element('li', '', line)));
    if (!this.under || this.hits.length) $('found').textContent = asked ? this.summary() : '';
    const full = this.hits.length >= most;
    $('more-hits').hidden = !this.continues || full;
    $('more-hits').disabled = Boolean(this.under);
    $('full').hidden = !this.continues || !full;
    for (const facet of this.facets.values()) this.showFacet(facet);
  }

  summary() {
    const n = this.total ?? this.hits.length;
    const more = this.total === null && this.continues ? ' or more' : '';
    const shown = this.hits.length < n ? `, ${number(this.hits.length)} shown` : '';
    return `${n ? number(n) : 'No'}${more} object${n === 1 && !more ? '' : 's'}${shown} · ${(this.took / 1000).toFixed(2)} s · ${new Date(this.answered).toLocaleTimeString()}`;
  }

  // showFacet writes the counts of a key. Each narrows the query, or widens it again.
  showFacet(facet) {
    const { key, title, all, counts, total } = facet;
    all.hidden = !counts.length;
    const focused = all.contains(document.activeElement) ? document.activeElement.dataset.part : undefined;
    const list = element('ul');
    list.append(...(facet.open ? counts : counts.slice(0, fewCounts)).map(({ value, n }) => {
      const part = term(key, value);
      const button = element('button');
      button.dataset.part = part;
      button.setAttribute('aria-pressed', String(has(this.query ?? '', part)));
      button.append(element('span', value ? '' : 'help', clean(value, 253) || 'none'), element('b', '', number(n)));
      button.addEventListener('click', () => this.ask(toggle(this.query, part)));
      const item = element('li');
      item.append(button);
      return item;
    }));
    all.replaceChildren(element('h3', '', title), list);
    if (focused !== undefined) [...list.querySelectorAll('button')].find((button) => button.dataset.part === focused)?.focus();
    if (counts.length > fewCounts) {
      const more = element('button', 'quiet', facet.open ? 'Fewer' : `${number(counts.length - fewCounts)} more`);
      more.setAttribute('aria-expanded', String(facet.open));
      more.addEventListener('click', () => {
        facet.open = !facet.open;
        this.showFacet(facet);
        all.querySelector('.quiet').focus();
      });
      all.append(more);
    }
    const left = total - counts.reduce((sum, c) => sum + c.n, 0);
    if (left > 0) all.append(element('p', 'help', `${number(left)} more are in ${number(facet.unshown)} counts that are not shown`));
  }

  // toggle shows what has no column, below a row, or hides it.
  toggle(tr) {
    const open = tr.getAttribute('aria-expanded') === 'true';
    tr.setAttribute('aria-expanded', String(!open));
    if (open) {
      tr.nextElementSibling.remove();
      return;
    }
    const hit = this.hits[[...this.body.querySelectorAll('tr[aria-expanded]')].indexOf(tr)];
    const row = element('tr', 'detail');
    const cell = element('td');
    cell.colSpan = titles.length;
    cell.append(details(hit, this.view));
    row.append(cell);
    tr.after(row);
  }
}

function newHit(hit, now) {
  const tr = element('tr');
  tr.tabIndex = -1;
  tr.setAttribute('aria-expanded', 'false');
  const created = hit.created ? now - Date.parse(hit.created) : null;
  const some = cells(hit).slice(0, fewCells).map(([column, value]) => `${column} ${value}`).join(' · ');
  const texts = [hit.cluster, hit.kind, hit.namespace, hit.name, hit.status, some, created === null ? '' : showAge(created)];
  tr.append(...texts.map((text, i) => {
    const cell = element(titles[i] === 'Name' ? 'th' : 'td', `c-${titles[i].toLowerCase()}`, clean(text, 253) || '–');
    cell.dataset.title = titles[i];
    return cell;
  }));
  tr.querySelector('th').scope = 'row';
  tr.querySelector('th').classList.add('name');
  if (hit.asOf) {
    tr.dataset.old = '';
    tr.firstElementChild.append(element('span', 'as-of', `as of ${showTime(hit.asOf, now)}`));
  }
  return tr;
}

// details are what has no column, and how to see the object itself.
function details(hit, view) {
  const list = element('dl', 'more');
  const add = (name, ...content) => {
    const value = element('dd');
    value.append(...content);
    list.append(element('dt', '', name), value);
  };
  const text = command(view, hit);
  if (text) {
    const code = element('code', '', text);
    const copy = element('button', 'quiet', 'Copy');
    copy.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(text);
        copy.textContent = 'Copied';
      } catch {
        getSelection().selectAllChildren(code);
      }
    });
    add('The object', code, ' ', copy);
  } else add('The object', 'Its names have characters that are not safe to paste into a shell.');
  add('Kind', clean(`${hit.apiVersion} ${hit.kind}`, 400));
  const printed = cells(hit);
  for (const [column, value] of printed) add(column, value);
  if (hit.created) add('Created', new Date(hit.created).toLocaleString());
  if (hit.owner) add('Owner', clean(hit.owner));
  if (hit.node && !printed.some(([, value]) => value === hit.node)) add('Node', clean(hit.node, 253));
  if (hit.images?.length) add(hit.images.length > 1 ? 'Images' : 'Image', clean(hit.images.join(', ')));
  for (const [key, value] of Object.entries(hit.labels ?? {}).slice(0, 64)) add(clean(key, 317), clean(value, 63));
  return list;
}
