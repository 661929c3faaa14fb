// Requests of the page. The token lives here, in memory, and nowhere else.

const group = 'apis/clusterproxy.open-cluster-management.io/v1alpha1';
const viewGroup = 'apis/proxy.open-cluster-management.io/v1alpha1';
const slowest = 30_000; // ms for one answer

let token = '';

// rootOf returns what the paths of the APIs begin with: what is in front of /ui/, or in
// front of the hub's path to the Service by which its kube-apiserver serves the page. It
// removes credentials there, so that the proxy API itself would not know the user.
export function rootOf(path) {
  const root = path.slice(0, path.lastIndexOf('/ui/') + 1);
  const byHub = root.match(/^(.*\/)api\/v1\/namespaces\/[^/]+\/services\/[^/]+\/proxy\/$/);
  return byHub ? byHub[1] : root;
}

const root = rootOf(location.pathname);

export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

// signIn keeps a token. It reports whether the text can be one.
export function signIn(text) {
  const value = text.trim().replace(/^bearer\s+/i, '');
  if (!/^[\x21-\x7e]+$/.test(value)) return false;
  token = value;
  return true;
}

export function signOut() {
  token = '';
}

export const hasToken = () => token !== '';

async function get(path, accept = 'application/json', signal = null) {
  const headers = { Accept: accept };
  if (token) headers.Authorization = `Bearer ${token}`;
  const late = AbortSignal.timeout(slowest);
  let answer;
  try {
    answer = await fetch(root + path, {
      headers,
      // A token decides alone. Without one the browser may have a certificate.
      credentials: token ? 'omit' : 'same-origin',
      cache: 'no-store', mode: 'same-origin', redirect: 'error', referrerPolicy: 'no-referrer', signal: signal ? AbortSignal.any([signal, late]) : late,
    });
  } catch (e) {
    throw new Refused(0, e.name === 'TimeoutError' ? 'There was no answer within 30 s.' : 'The proxy API cannot be reached.');
  }
  let body = null;
  try {
    body = await answer.json();
  } catch {
    // What is no JSON is not of this API; its code says enough.
  }
  if (!answer.ok) {
    throw new Refused(answer.status, typeof body?.message === 'string' ? body.message : `The answer was ${answer.status}.`);
  }
  if (body === null) throw new Refused(0, 'The answer is not of the Kubernetes API. Is something else published under this address?');
  return body;
}

// clusters lists all clusters that the user may reach, in one request.
export const clusters = async () => (await get(`${group}/clusters`)).items ?? [];

export const views = async () => (await get(`${viewGroup}/fleetviews`)).items ?? [];

// hasSessions asks discovery.
export const hasSessions = async () => ((await get(group)).resources ?? []).some((r) => r.name === 'sessions' && r.verbs?.includes('list'));

// sessions are a Table, with the columns that kubectl shows.
export const sessions = () => get(`${group}/sessions`, 'application/json;as=Table;v=v1;g=meta.k8s.io');

// search asks the fleet index, in the clusters of a view. The signal ends the request.
export const search = (view, values, signal) => get(`${group}/fleetviews/${encodeURIComponent(view)}/search?${new URLSearchParams(values)}`, undefined, signal);
