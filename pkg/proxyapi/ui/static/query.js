// What is computed of searches of the fleet index. Nothing here touches the document.
import { clean } from './model.js';

const longest = 4096; // of a query
const viewName = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/;

export const viewAll = 'all';

const parts = (query) => query.match(/(?:"[^"]*"|[^\s"])+/g) ?? [];

const same = (a, b) => a.toLowerCase() === b.toLowerCase();

// term is the part of a query that finds a value of a key. A ? is any character, and stands for those that a query cannot have.
export function term(key, value) {
  const text = String(value ?? '').replace(/\p{C}|[",]|[^\S ]/gu, '?');
  return /^!|\s/.test(text) ? `${key}:"${text}"` : `${key}:${text}`;
}

export const has = (query, part) => parts(query).some((p) => same(p, part));

// toggle adds a part to a query, or removes it.
export function toggle(query, part) {
  const all = parts(query);
  return (has(query, part) ? all.filter((p) => !same(p, part)) : [...all, part]).join(' ');
}

// fragment is what a link to a search ends with.
export function fragment(view, query) {
  return `#search?${new URLSearchParams(view === viewAll ? { q: query } : { q: query, view })}`;
}

// readFragment is null unless the fragment is one of the search. The query is null if there is none yet.
export function readFragment(text) {
  const found = text.match(/^#search(?:\?(.*))?$/);
  if (!found) return null;
  const values = new URLSearchParams(found[1] ?? '');
  const view = values.get('view') ?? '';
  return { view: viewName.test(view) ? view : viewAll, query: values.get('q')?.slice(0, longest) ?? null };
}

// searchable are the views that the index can search.
export function searchable(views) {
  return views.filter((v) => !v.spec?.resources?.length).map((v) => v.metadata?.name).filter((name) => viewName.test(name ?? ''));
}

const quote = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// command prints an object. It is empty for one whose names could do more than name it where they are pasted.
export function command(view, hit) {
  const [group, version] = String(hit.apiVersion ?? '').split('/');
  const object = `${hit.resource}${version ? `.${group}` : ''}/${hit.name}@${hit.cluster}`;
  const namespace = String(hit.namespace ?? '');
  const all = object + namespace;
  if (!/^[a-z0-9][a-z0-9.-]*\//.test(object) || clean(all, all.length) !== all) return '';
  const context = view === viewAll ? 'fleet' : `fleet-${view}`;
  return `kubectl --context ${context} get ${quote(object)}${namespace ? ` -n ${quote(namespace)}` : ''} -o yaml`;
}

// cells are the columns that kubectl prints and that say something, apart from the state.
export function cells(hit) {
  const values = Array.isArray(hit.cells) ? hit.cells : [];
  return (hit.columns ?? []).map((column, i) => [clean(column, 64), clean(values[i])])
    .filter(([, value]) => value && value !== '<none>' && value !== '<unknown>' && value !== hit.status);
}

// showTime is a time of day, with its date if it is not of today.
export function showTime(text, now) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return 'an unknown time';
  const time = at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  return at.toDateString() === new Date(now).toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
}

const count = (n, what) => `${n} ${what}${n === 1 ? '' : 's'}`;

// few says how many clusters there are, and which, or some of them.
function few(n, names) {
  const text = count(n, 'cluster');
  if (!names?.length) return text;
  const more = n - names.length;
  return `${text} (${names.map((name) => clean(name, 253)).join(', ')}${more > 0 ? ` and ${more} more` : ''})`;
}

const lacks = [
  ['incomplete', 'is incomplete in the fleet index', 'some of its objects are not found', 'incomplete'],
  ['undecided', 'could not decide what you may see', 'objects of it are not shown', 'undecided'],
  ['unindexed', 'is not in the fleet index', 'its objects are not found', 'not in the index'],
];

// basis says what an answer is based on, if that is less than all there is: in a line, and about each cluster, in the words of
// kubectl clusterproxy search. Others are clusters that the answer does not name.
export function basis(answer, now) {
  const lines = [];
  const short = [];
  const names = (of) => Object.keys(of ?? {}).sort();
  const away = names(answer.away);
  if (away.length) short.push(`${count(away.length, 'cluster')} away`);
  for (const name of away) lines.push(`Cluster ${clean(name, 253)} was last heard at ${showTime(answer.away[name], now)}; its objects are as of then.`);
  for (const [of, what, effect, word] of lacks) {
    const some = names(answer[of]);
    if (some.length) short.push(`${some.length} ${word}`);
    for (const name of some) lines.push(`Cluster ${clean(name, 253)} ${what} (${clean(answer[of][name])}); ${effect}.`);
  }
  for (const name of answer.unknown ?? []) lines.push(`There is no cluster ${clean(name, 253)} in this view that you may search: look at the name, or ask for the right to it.`);
  if (answer.unknown?.length) short.push(`${answer.unknown.length} unknown`);
  if (answer.denied > 0) {
    short.push(`${answer.denied} with kinds that you may not list`);
    lines.push(`In ${few(answer.denied, answer.deniedIn)} you may not list all of these kinds; such objects are not shown.`);
  }
  if (answer.partly > 0) {
    short.push(`${answer.partly} by namespaces`);
    lines.push(`In ${few(answer.partly, answer.partlyIn)} you may list some namespaces at most; objects in them may be missing: name the namespaces, as in namespace:a,b, and few clusters.`);
  }
  if (answer.more > 0) {
    short.push(`${answer.more} more of these`);
    lines.push(`${count(answer.more, 'cluster')} more: the answer says so of their objects too.`);
  }
  return { short: short.join(' · '), lines };
}

// join is the basis of two pages of an answer.
export function join(a, b) {
  const both = { unknown: b.unknown, more: Math.max(a.more ?? 0, b.more ?? 0) };
  for (const of of ['partly', 'denied']) {
    const most = (b[of] ?? 0) > (a[of] ?? 0) ? b : a;
    both[of] = most[of] ?? 0;
    both[`${of}In`] = most[`${of}In`];
  }
  for (const of of ['away', 'incomplete', 'undecided', 'unindexed']) both[of] = { ...a[of], ...b[of] };
  return both;
}
