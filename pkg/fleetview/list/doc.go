// Package list answers lists of a fleet view: one cluster's items after another's, in the order of the
// clusters' names, on one page or on several.
//
// Items pass through as bytes: package merge changes their metadata and decodes nothing. The first
// MiB is kept before the header is sent: a member that breaks off in it is left out with a Warning.
// One that breaks off later ends the connection, because a list that lacks objects silently is worse
// than none.
//
// # Pages
//
// serve asks in waves (list.go), of 64 members at a time and of 8 at first; page.add (page.go) joins their items by package
// merge, and listing.token goes on with the next page. A page with a limit holds whole answers of members, or the first part of one. Members that have
// not answered 300 ms after another are passed over (gather.go); the last page waits for them, for
// the view's timeout, 5 s by default. An answer without a limit waits half of that for the beginning of each answer
// and names who is late in Warnings. Of an answer that is not its turn yet, some is read ahead.
//
// A list's resourceVersion is the time at which its first page was asked for, and nothing else
// (package version): package watch keeps which version each member had then.
//
// # Informers
//
// An informer takes what is not in its list for deleted. Its list waits for View.InformerTimeout,
// for all pages together, and names what is missing then in watch.AnnotationMissing. A list is an
// informer's if it has a resourceVersion and is neither Exact nor a Table: reflectors of client-go
// (0.36) list from 0 or from a version, and kubectl, consoles and scripts without one.
//
// # Files
//
//	list.go       one list, page by page
//	wanted.go     which list a client wants, or which page of it
//	page.go       writes the answer
//	agree.go      leaves out lists of another kind than most
//	gather.go     members' lists as they begin, and read ahead
//	informers.go  which lists are an informer's, and what they wait for
//	whole.go      a list that one member answers to a write
//	ending.go     what a list has before and behind its items
//	listing.go    what is kept for all lists, for one list, and for one page
package list
