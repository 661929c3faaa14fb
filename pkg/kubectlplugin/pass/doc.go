// Package pass has the commands that let somebody else use clusters for some hours. A pass
// (kind Pass) is made with its maker's own rights: the hub refuses what the maker may not give
// away. Its account, role, binding and ManifestWorks have it as their owner, so that the hub's
// garbage collector removes all of them with it. If a step fails, the steps before it are undone.
//
// # Files
//
//	pass.go          the commands and their flags
//	list.go          lists and ends passes
//	create.go        makes one
//	manifestwork.go  what it needs on clusters
//	contexts.go      its kubeconfig
//	options.go       what flags may be, and what is said of refusals
//	store.go         passes on the hub
package pass
