// Package ui is a page that shows people the clusters that they may reach. The proxy API
// serves it at /ui/ of the port for users if --ui is set.
//
// # What is public
//
// The files are the same for everybody and contain nothing of the hub: no names, no
// counts, not even a version. They are therefore served without a credential, the only answer of that
// port besides probes for which none is needed. Everything that the page shows it reads from the APIs that
// kubectl reads, as its user:
//
//   - clusters of the aggregated API, one request for all of them;
//   - FleetViews, at the path that they have on the hub;
//   - sessions of the aggregated API, if discovery has them;
//   - searches of a FleetView, which the fleet index answers.
//
// It makes no request for a cluster. It asks every 10 s, every minute while nobody
// looks at it, and less often while requests fail. It searches when its user says so, or a link
// that they have followed: the query is in the URL's fragment. One request of a search is under way at a
// time, and the next search ends it.
//
// # The credential
//
// The page first asks without a token. A client certificate of the browser, or
// kubectl proxy, may be all that is needed. If the answer is 401 it asks for a token, which
// stays in a variable of the module until the tab is closed or reloaded: it is in no
// cookie, storage or URL, and the input field is emptied. With a token, requests are sent
// without the browser's own credentials.
//
// # Where it works
//
// All references are relative, so a path prefix in front of /ui/ is a prefix of the APIs
// too. Behind the hub's kube-apiserver, as .../services/https:cluster-proxy-addon-user:9092/proxy/ui/,
// no credential reaches the proxy API. There the page uses the hub's own API at
// the beginning of that path, which leads to the same kinds.
//
// # Who could attack it
//
//   - A cluster, by its labels, messages, versions and names of objects. They reach the DOM
//     by textContent only, without control characters. The command that the page offers for copying has names in
//     quotes, and none that a shell or kubectl could take for more than names. The Content-Security-Policy allows no
//     inline script or style, and requires trusted types of which there are none.
//   - A page of another site, by a frame or an opener: frame-ancestors and
//     Cross-Origin-Opener-Policy refuse both. No cookie exists that it could ride on. A
//     client certificate goes along by itself, as a cookie does: package proxyapi refuses requests with
//     one that the browser says are of another site (package filter's crosssite.go).
//   - A page of a cluster at the proxy API's own origin, which an exposed Service or a hostile
//     kube-apiserver serves below /<cluster>/. Where the page is served, package proxyapi adds
//     "Content-Security-Policy: sandbox" to such answers, which gives a document an
//     origin of its own. It always removes Service-Worker-Allowed, with which a worker
//     could have had requests for /ui/ pass through it.
//
// # Files
//
//	ui.go   serves the files
//	static  the page: app.js is its life, board.js the table, search.js the search,
//	        api.js the requests, model.js and query.js what is computed, plot.js the plots
package ui
