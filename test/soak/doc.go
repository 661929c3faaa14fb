// Package soak runs traffic of every kind for hours, with faults at random and new certificates
// every two minutes, and looks for what grows: make soak HOURS=8. HOURS takes fractions, of
// which 0.1 is a glance. It ends by writing results.txt. With INDEX=1 the hub has a fleet index.
//
// # What is real
//
// It runs a lab without nodes (package lab): the addon's processes are processes of this
// machine, two of each on the hub, and one agent for each of two clusters. kwok's pods answer
// logs, exec and port-forward. Without the race detector, because that takes memory of its own.
//
// # Traffic
//
// For each cluster, and by each endpoint (the proxy API with a token of the cluster and with one
// of the hub, and the aggregated API): get, list, post, watch, logs, logs that are followed, exec
// and port-forward by WebSocket and by SPDY. Besides: our own dialer, konnectivity's client,
// CONNECT, an exposed Service, and lists and watches of FleetView "all" by both endpoints. Each
// client counts what went well. It fails if an answer is not the cluster's, if a watch lacks an
// event, and if a request fails or a stream breaks outside of the window of a fault.
//
// # Faults
//
// Every 10 to 20 s one of these, by a random number of which the seed is printed (SOAK_SEED): SIGKILL,
// SIGTERM or SIGSTOP for 5 to 15 s of a proxy server, a proxy API, an agent or an addon manager;
// a restart of a managed kube-apiserver; and every two minutes a leaf certificate is taken
// away. A window says what may be noticed of it, by whom, and for how long:
//
//   - of an addon manager and a new certificate: nothing;
//   - of a proxy server or a proxy API that is asked to end: streams end within 40 s, no request
//     fails;
//   - of one that is killed: requests fail for 5 s, and of the proxy API for 15 s: the hub's own
//     kube-apiserver looks for it at times. Of one that is frozen, until 32 s after it goes on;
//   - of an agent, or a managed kube-apiserver: the same cluster for 20 s, and after a frozen agent for
//     32 s; streams of an agent that is asked to end do so within 40 s. After the restart a view's
//     watch may lack events: its cluster answers 410, and the view sends the difference, or 410. All other
//     gaps fail the run.
//
// Those that go straight to a cluster, without the addon, may notice a restart of its
// kube-apiserver alone. They tell faults of the lab from those of the addon.
//
// # With an index
//
// There are lists of the Indexed view as kubectl get makes them, by both endpoints, and on each cluster
// writes of Services. The one replica of the index has faults as the others have, of which nobody may notice anything: views ask the
// clusters meanwhile. One that is killed begins without rows. In one of eight turns the last cluster has no agents for 45 s,
// longer than the index takes its rows for current. At the end the store has the objects of the clusters, each once, of each
// kind that is indexed.
//
// # What grows
//
// Resident memory, heap, goroutines, open files and sockets of each process are looked at every 3 s.
// The first proxy server, proxy API and addon manager, and the agents of the first cluster, are never hurt
// themselves: what is compared are the medians of each quarter of the time of processes that lived
// through all of it. If a kind has none, whatever ran is compared. Goroutines, files and sockets are
// those of all processes of a kind on a cluster together: each restart of one moves its connections
// to those that survive, which had 39 % more sockets after half an hour of that.
//
// A measure fails the run if it has grown since the second quarter, in both quarters after it (a
// fifth of the growth in each at least), and by more than its limit. Why:
//
//   - A leak grows with requests and faults, of which each quarter has as many, so it grows in
//     each quarter, and as much in a short run's second half as in a long one's per fault.
//   - The first quarter is warm-up: pools fill, caches are read, the heap finds its size. In runs of
//     less than an hour it is part of the second quarter too, and results.txt says how long a run was.
//   - A step is no leak: a client that connects, or a pool that learned a new size, is in one
//     quarter alone. Nor is a wave, which comes back.
//   - Medians of a quarter take the teeth of the garbage collector and the burst after a fault out.
//     The rest is a tenth or so for resident memory, which the kernel gives and takes in large
//     pieces, and less for the rest. So the limits are 10 % of the second quarter (heap 15 %; 5 % of
//     what all processes of a kind have together, of which there are two or more), and at least
//     6 MiB, 3 MiB of heap, 20 goroutines, 10 files, 10 sockets.
//   - It does not see less than that in half of the run. With a fault every 20 s, a goroutine that
//     each leaves behind is seen after 15 minutes, and one KiB of heap for each of some
//     60 requests a second in two minutes of the second half.
//
// TestGrows has noise, warm-ups, steps, waves and leaks.
//
// # Files
//
//	index.go    the clients of the fleet index, and what is in it at the end
//	clients.go  what clients do
//	faults.go   faults and their windows
//	process.go  what processes take
//	results.go  results.txt
//	slope.go    what grows
//	ledger.go   clients, windows of faults, and what is judged
package soak
