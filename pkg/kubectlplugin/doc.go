// Package kubectlplugin is the kubectl plugin of the addon, "kubectl clusterproxy". It
// speaks to the hub with the user's own kubeconfig, through the aggregated API, and needs
// no right that the user does not have.
//
// # Rules of all commands
//
//   - A context that leads to a cluster or a view is followed to its hub (hubcontext.go).
//   - Exit statuses are one table: 0 done and good, 1 something is not good, 2 it could not
//     be done or found out (Run).
//   - Text goes to standard output if a script could want it, and to standard error
//     otherwise. A command that waits says for what (progress.go).
//   - Objects are printed by kubectl's own printers (print.go): JSON, YAML, JSONPath, names
//     and tables. More than one object is a List.
//   - What a cluster says about itself may be an attack on the terminal, or on a reader.
//     Each writer escapes what is not printable (terminal.go), and a cell is one line.
//   - "Not found" of a kind or of the whole API is never "there is none": isMissing tells
//     the three apart, and checkServed asks whether the hub has the addon.
//   - A refusal has a remedy, which names a command or a person (remedy.go).
//   - The number of requests does not grow with the number of clusters, but for commands
//     that ask each cluster, which bound how many they ask at a time.
//
// # Files
//
//	command.go       Run, flags, requests to the hub, clusters by name
//	hubcontext.go    the hub of a context that leads to a cluster or a view
//	print.go         formats and tables
//	terminal.go      text that cannot harm a terminal
//	progress.go      what a command is doing, while somebody looks
//	remedy.go        what to do about an error, and which hop to a cluster failed
//	completion.go    names of clusters and views for shells
//	status.go        status: which clusters can be reached
//	views.go         views: FleetViews and their clusters
//	services.go      services: what is exposed, and by which URL
//	whoami.go        whoami: who the user is on a cluster
//	kubeconfig.go    kubeconfig: contexts for clusters
//	viewcontexts.go  and for views
//	check.go         check: what is wrong
//	checkhub.go      with the hub's parts
//	checkcluster.go  and with a cluster and its tunnel
//	precheck.go      check --pre: what an upgrade will not take over
//	probe.go         test: one request of each kind
//	version.go       version: of all parts
//	bundle.go        bundle: everything that somebody else needs to find a fault
//	bundlefiles.go   what is in it
//	agents.go        the agents' pods in it
//	redact.go        without credentials
//	pass.go          pass: lets somebody else use clusters for some hours
//	passcreate.go    makes one
//	passcontexts.go  its kubeconfig
//	passlist.go      lists and ends passes
//	passwork.go      what it needs on clusters
//	localproxy.go    proxy: a local port for a cluster or a view
//	replay.go        replay: shows a recording
package kubectlplugin
