// The life of the page: signing in, asking again, and what the user does.
import * as api from './api.js';
import { Board, element, fillTable } from './board.js';
import { Fleet, members, resources, select, showAge, sort, terms } from './model.js';
import { readFragment } from './query.js';
import { Search } from './search.js';

const often = 10_000; // ms between requests
const seldom = 60_000; // while nobody looks, and for what rarely changes
const most = 300_000; // after failures

const $ = (id) => document.getElementById(id);
const fleet = new Fleet();
const filter = { words: '', state: '', set: '' };
const board = new Board($('board'), render);
const search = new Search(askForToken);
const tabs = ['clusters', 'search', 'views', 'sessions'];

let timer = 0;
let failures = 0;
let answered = 0; // when the last list came
let asked = 0; // when what rarely changes was asked for
let views = [];
let sessionsServed = false;
let signedIn = false;
let followed = false; // the link with which the page was opened
let run = 0; // grows with each sign-in or sign-out, so that late answers are told apart

function schedule() {
  clearTimeout(timer);
  const pause = Math.min(often * 2 ** failures, most);
  timer = setTimeout(poll, document.hidden ? Math.max(pause, seldom) : pause);
}

async function poll() {
  clearTimeout(timer);
  const mine = run;
  try {
    const items = await api.clusters();
    if (mine !== run) return;
    failures = 0;
    answered = Date.now();
    fleet.update(items, answered);
    $('board').dataset.answers = Number($('board').dataset.answers ?? 0) + 1;
    signedIn = true;
    say('');
    $('signin').hidden = true;
    await pollRest(mine);
  } catch (e) {
    if (mine !== run) return;
    if (e.code === 401) {
      askForToken(e);
      return;
    }
    failures++;
    if (e.code === 403) {
      signedIn = true; // and may do nothing
      $('signin').hidden = true;
      fleet.update([], Date.now());
      say(`The hub knows you, but does not let you list clusters. Ask for ClusterRole cluster-proxy-viewer on the hub. ${e.message}`);
    } else {
      say(e.code === 404 ? `The API of clusters is not served here. ${e.message}` : `${e.message} The page tries again; what it shows is old.`);
    }
  }
  if (mine !== run) return;
  if (signedIn && !followed) {
    followed = true;
    follow();
  }
  render();
  schedule();
}

// pollRest asks for what is not always there. A user who may not see it does not see it.
async function pollRest(mine) {
  const optional = async (ask, otherwise) => {
    try {
      return await ask();
    } catch (e) {
      if (e.code === 401) throw e;
      return otherwise;
    }
  };
  if (Date.now() - asked >= seldom) {
    asked = Date.now();
    const [v, s] = await Promise.all([optional(api.views, []), optional(api.hasSessions, false)]);
    if (mine !== run) return;
    views = v;
    sessionsServed = s;
  }
  const table = sessionsServed ? await optional(api.sessions, null) : null;
  if (mine !== run) return;
  showViews();
  showSessions(table);
}

function askForToken(e) {
  const had = api.hasToken();
  reset();
  $('signin').hidden = false;
  $('signin-why').textContent = had ? 'This token is not valid, or not any more. Paste a new one.'
    : 'The hub does not know you yet: your browser sent no client certificate, or one that the hub does not accept.';
  $('signin-error').textContent = had ? `Not accepted: ${e.message}` : '';
  $('token').focus();
}

// reset forgets the user and all that they saw.
function reset() {
  run++;
  clearTimeout(timer);
  api.signOut();
  signedIn = false;
  followed = false;
  failures = 0;
  asked = 0;
  answered = 0;
  views = [];
  fleet.known.clear();
  search.forget();
  showViews();
  showSessions(null);
  render();
  say('');
}

function say(text) {
  const p = $('failure');
  p.hidden = !text;
  if (p.textContent !== text) p.textContent = text;
}

function render() {
  $('tabs').hidden = !signedIn;
  $('leave').hidden = !api.hasToken();
  const selected = tabs.find((name) => $(`tab-${name}`).getAttribute('aria-selected') === 'true');
  for (const name of tabs) $(name).hidden = !signedIn || name !== selected;
  const count = fleet.count();
  document.querySelector('#tab-clusters .count').textContent = count.all;
  document.title = count.away ? `${count.away} away · Clusters` : 'Clusters';
  showStates(count);
  showSets();
  const list = sort(select(fleet.all(), filter), board.order);
  board.show(list, answered);
  const none = $('none');
  none.hidden = list.length > 0 || !signedIn || failures > 0;
  none.textContent = count.all ? 'No cluster passes the filter. Esc clears it.' : 'There is no cluster that you may reach.';
  showFreshness();
}

function showFreshness() {
  const text = !answered ? '' : failures ? `as of ${showAge(Date.now() - answered)} ago` : `as of ${new Date(answered).toLocaleTimeString()}`;
  if ($('freshness').textContent !== text) $('freshness').textContent = text;
  $('freshness').classList.toggle('old', failures > 0);
}

function showStates(count) {
  const group = $('states');
  if (!group.firstChild) {
    for (const [state, title] of [['', 'All'], ['available', 'Available'], ['away', 'Away'], ['unknown', 'Unknown']]) {
      const button = element('button', 'chip');
      button.dataset.state = state;
      button.append(element('span', 'dot'), element('span', '', title), element('b'));
      button.addEventListener('click', () => {
        filter.state = state;
        render();
      });
      group.append(button);
    }
  }
  for (const button of group.children) {
    const { state } = button.dataset;
    button.lastChild.textContent = count[state || 'all'];
    button.setAttribute('aria-pressed', String(filter.state === state));
    button.hidden = state === 'unknown' && !count.unknown && filter.state !== state;
  }
}

function showSets() {
  const choice = $('set');
  const sets = fleet.sets();
  const known = [...choice.options].slice(1).map((o) => o.value);
  if (known.join('\n') === sets.join('\n')) return;
  choice.replaceChildren(choice.options[0], ...sets.map((name) => {
    const option = element('option', '', name);
    option.value = name;
    return option;
  }));
  if (!sets.includes(filter.set)) filter.set = '';
  choice.value = filter.set;
  choice.hidden = sets.length === 0;
}

function showTab(name, count) {
  const tab = $(`tab-${name}`);
  tab.hidden = count === null;
  tab.querySelector('.count').textContent = count ?? '';
  if (tab.hidden && tab.getAttribute('aria-selected') === 'true') choose('clusters');
}

function showViews() {
  search.offer(views);
  showTab('views', views.length || null);
  const all = fleet.all();
  fillTable($('views').querySelector('table'), ['View', 'Your clusters', 'Not available', 'Selects', 'Resources', 'Path'], views.map((v) => {
    const its = members(v, all);
    return [v.metadata?.name, its.length, its.filter((c) => c.state !== 'available').length, terms(v), resources(v), `/@${v.metadata?.name}/`];
  }));
}

function showSessions(table) {
  const columns = (table?.columnDefinitions ?? []).map((c, i) => ({ ...c, i })).filter((c) => !c.priority);
  const rows = table?.rows ?? [];
  showTab('sessions', table ? rows.length : null);
  fillTable($('sessions').querySelector('table'), columns.map((c) => c.name), rows.map((r) => columns.map((c) => r.cells?.[c.i])));
}

function choose(name) {
  for (const other of tabs) {
    const tab = $(`tab-${other}`);
    tab.setAttribute('aria-selected', String(other === name));
    tab.tabIndex = other === name ? 0 : -1;
  }
  render();
}

// open chooses a tab as the user does. The address is that of what is shown.
function open(name) {
  history.replaceState(null, '', name === 'search' ? search.fragment : location.pathname + location.search);
  choose(name);
}

function openSearch() {
  open('search');
  $('query').select();
  $('query').focus();
}

// follow shows the search that the address names.
function follow() {
  const link = readFragment(location.hash);
  if (!link) {
    if (!$('search').hidden) choose('clusters');
    return;
  }
  choose('search');
  search.follow(link);
}

for (const name of tabs) {
  $(`tab-${name}`).addEventListener('click', () => (name === 'search' ? openSearch() : open(name)));
}
$('tabs').addEventListener('keydown', (e) => {
  const shown = tabs.filter((name) => !$(`tab-${name}`).hidden);
  const at = shown.findIndex((name) => e.target === $(`tab-${name}`));
  const to = shown[at + ({ ArrowRight: 1, ArrowLeft: -1 }[e.key] ?? NaN)];
  if (!to) return;
  open(to);
  $(`tab-${to}`).focus();
});
window.addEventListener('hashchange', () => signedIn && follow());

$('signin-form').addEventListener('submit', (e) => {
  e.preventDefault();
  const text = $('token').value;
  $('token').value = '';
  run++;
  if (!api.signIn(text)) {
    $('signin-error').textContent = 'This cannot be a token: it has blanks, or characters that no token has.';
    return;
  }
  $('signin-error').textContent = '';
  $('signin-why').textContent = 'Asking the hub …';
  poll();
});
$('leave').addEventListener('click', () => {
  reset();
  open('clusters');
  $('query').value = '';
  $('signin-why').textContent = 'You are signed out. This page has forgotten the token.';
  $('signin-error').textContent = '';
  $('signin').hidden = false;
  $('token').focus();
});

$('filter').addEventListener('input', (e) => {
  filter.words = e.target.value;
  render();
});
$('set').addEventListener('change', (e) => {
  filter.set = e.target.value;
  render();
});
document.addEventListener('keydown', (e) => {
  const typing = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement;
  const command = !typing && signedIn && !e.ctrlKey && !e.metaKey && !e.altKey;
  if (command && e.key === '/' && !$('clusters').hidden) {
    e.preventDefault();
    $('filter').focus();
  } else if (command && (e.key === '/' || e.key === 's')) {
    e.preventDefault();
    openSearch();
  } else if (e.key === 'Escape' && !$('clusters').hidden) {
    Object.assign(filter, { words: '', state: '', set: '' });
    $('filter').value = '';
    $('set').value = '';
    render();
  } else if (e.key === 'ArrowDown' && (e.target === $('filter') || e.target === $('query'))) {
    e.preventDefault();
    $(e.target === $('filter') ? 'board' : 'hits').querySelector('tr[tabindex="0"]')?.focus();
  }
});
window.addEventListener('online', () => signedIn && poll());
document.addEventListener('visibilitychange', () => {
  if (!signedIn) return;
  if (!document.hidden && failures === 0 && Date.now() - answered >= often) poll();
  else schedule();
});

poll();
