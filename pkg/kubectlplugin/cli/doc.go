// Package cli is what all commands of the kubectl plugin share: the hub and its user's rights,
// output, and words for what is wrong.
//
//   - A context that leads to a cluster or a view is followed to its hub (factory.go).
//   - Objects are printed by kubectl's own printers: JSON, YAML, JSONPath, names and tables.
//     More than one object is a List.
//   - Texts of a cluster may be an attack on the terminal, or on a reader.
//     Each writer escapes what is not printable, and a cell is one line.
//   - "Not found" of a kind or of the whole API is never "there is none": IsMissing tells
//     the three apart, and CheckServed asks whether the hub has the addon.
//   - A refusal has a remedy, which names a command or a person.
//
// # Files
//
//	completion.go  names of clusters and views for shells
//	clusters.go    the clusters that the user may reach, and a user's rights to them
//	views.go       the FleetViews that the user may see
//	print.go       formats and tables
//	progress.go    what a command is doing, while somebody looks
//	factory.go     the root command, kubeconfig and flags, exit statuses, the hub of a context
//	remedy.go      what to do about an error, and which hop to a cluster failed
//	hub.go         requests to the hub, and the paths of what it has
//	terminal.go    text that cannot harm a terminal
package cli
