// Package session knows what users have open, lists it, ends it, and records what users of
// exec and attach see.
//
// # What is a session
//
// Sessions of the aggregated API are the streams that users have open: exec, attach,
// port-forward, CONNECT, other upgrades, and watches of views. Requests that end by themselves,
// logs, and watches of one cluster are not in it.
//
//   - One rule for rights: users with the hub's right to sessions see those of all users and may
//     end them, and nobody else sees any. A user's own are no exception: a rule by user would
//     need a filter that RBAC does not know.
//   - A name is 16 random bytes. Of the query it shows the container alone, because command
//     lines may have secrets. Text that users and clusters have chosen is quoted if it is
//     not printable, and cut off (Shown).
//   - A session is added when the stream begins, after the answer's header, and removed by the
//     function that serves the request, however it ends. A plain request pays nothing.
//   - A replica asks its peers when it is asked, for 1.5 s and 4 MiB each, and speaks for its
//     own sessions. A peer that does not answer is a Warning in a list, and 503 for a session
//     that is nowhere else. A peer's answer is read field by field, and quoted again.
//   - There is no watch: it would need one at each replica, and who waits for the end of a
//     session asks again. Without it the hub's garbage collector leaves sessions alone, too.
//   - `kubectl delete` comes to Delete (apigroup/sessions.go), which finds the replica: Peers.EndSession
//     (replica/sessions.go) has another one do it. There Registry.Finish (registry.go) calls Conn.End (stream.go).
//   - The audit event of a session's end names the caller and the session's user. The user reads "ended
//     by an administrator" behind a whole frame (package frames) or event, has 2 s to read it,
//     and is cut off then. Nothing of what the user sends after that goes on to the cluster.
//     The user may begin anew: rights are taken away elsewhere.
//
// # Recordings
//
// With --recording-dir what users of exec and attach see goes into files too, with --recording-url
// to a Service (package recording), for the clusters that the flags name. Package frames hands out the bytes as they pass, and
// changes none.
//
//   - The file is made before the request is sent: a user whom the policy lets have no session without
//     a recording has run nothing when the answer is 503. A request that the cluster refuses
//     leaves no file, and at a Service one that says so.
//   - Bytes are in the recording's buffer before the user gets them. Package recording says what
//     the volume takes later, and what it means to fail closed.
//   - Everything that the kubelet could take for exec or attach is recorded: upgrades of
//     pods/exec and pods/attach, and all of nodes/proxy. With --recording-fail-closed the requests
//     are refused that can run commands without an upgrade that this process sees: CONNECT to a
//     kube-apiserver, and nodes/proxy with a method other than GET and HEAD, because the kubelet's
//     run is there, which takes no notice of an Upgrade header.
//     Not seen are sessions by a Service, by port-forward, and by the proxy server's own port.
//   - A recording that fails ends its session as an administrator does, with another Status, or
//     the session goes on and log, metrics and audit event say so. It never begins again. One that fails
//     after the session's end is in log and metrics.
//   - Nothing serves recordings: no path, no right, no metric with a name leads to them.
//   - Replicas share the folder or have one each. They do not ask each other.
//
// # Files
//
//	watch.go     watches of views, and where an event ends
//	stream.go    the streams of sessions: counts them, ends them
//	registry.go  what users have open here
//	recorder.go  which sessions are recorded, and what becomes of those that cannot be
//	options.go   flags of recordings
//	session.go   one session, and which kinds there are
package session
