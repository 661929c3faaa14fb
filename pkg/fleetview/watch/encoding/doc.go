// Package encoding reads the lists and watches of members, and writes the events of a
// view's watch, in the forms in which clients want objects.
//
// A form is how objects are written: whole, their metadata, or as Tables. All are JSON (package
// merge says why). Members are asked for the client's form, because a stream does not know what
// objects mean. If one of them answers 406, the client gets its next form.
//
// Each event of a Table has one row, and the view's version. Its columns are those of all
// members that have said theirs, behind the cluster's. They are in the first event, and in
// each that follows a new one. Members are asked for the rows' objects even if the client
// does not want them: they say which object a row is about. The row of an object whose
// cluster is gone has the cluster and the name only.
//
// # Files
//
//	form.go    Form: how a client wants objects, and the Codec for that
//	table.go   Tables
//	json.go    objects and their metadata in JSON
//	codec.go   Codec: what forms do; events
//	events.go  kinds of events, reading watches in JSON
//	input.go   the bytes of a member's watch, and their buffer
package encoding
