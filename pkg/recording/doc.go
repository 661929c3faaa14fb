// Package recording writes what users of exec and attach see to files or to a Service, in the
// format asciicast v2, and reads such files. It knows nothing of connections: see pkg/frames and
// pkg/proxyapi for where the bytes come from.
//
// # The file
//
// A file has one line of JSON for the header and one for each event, as asciicast v2 says
// (https://docs.asciinema.org/manual/asciicast/v2/). asciinema plays it. The header says in
// "session" whose session it is and what it leads to. Events are
//
//	[1.5, "o", "text"]          output
//	[1.5, "i", "text"]          input, if it is recorded
//	[1.5, "r", "80x24"]         the size of the terminal
//	[1.5, "b", "stderr"]        the next event is output to stderr
//	[1.5, "b", "stdout gP8="]   the next event has exactly these bytes, in base64
//	[1.5, "l", "stdout 4096"]   so many bytes are not in the file
//	[1.5, "e", "why"]           the end
//
// JSON is UTF-8, and output is bytes. Bytes that are no UTF-8 stand in the text as U+FFFD,
// and exactly in the event before; a piece that is binary, such as the tar of kubectl cp, is one U+FFFD. A player ignores events that it does not know and shows the
// text; Reader returns the bytes. A character that arrives in two pieces is written when it is
// complete, up to 3 bytes late; the order of each stream's bytes stays, and every byte is in the file.
// Of a terminal stdout and stderr are one.
//
// A file without its last event is of a session that is open, or of a process that was
// killed. All lines but the last one are whole then; Reader says so at the end. Nothing is
// kept back to be written later but those 3 bytes, and nothing is synced: a process that
// is killed loses what is in its buffer, a node that fails also what its kernel has not
// written.
//
// # The buffer
//
// A session must not wait for a disk. Add copies its bytes into a buffer, and a goroutine of the
// recording encodes and writes what is there, in one go. Nothing is written by time: an idle
// session has an empty buffer. The buffer has 256 KiB. Behind that
//
//   - FailClosed holds the stream up: Room, which is called before Add, returns when half of it is
//     free. A recording whose volume does not complete one write in 10 s has failed.
//   - otherwise Room returns after a second. Then Add drops what it gets until the volume has taken
//     something, and an event says how much was lost there.
//
// The user may therefore see 256 KiB that are lost if the process is killed at that moment, or
// the volume fails. To wait for the disk with each byte would make each keystroke wait for it.
//
// A recording fails at the first error of the volume, at its limit of size, and when its file
// is not there any more, which is looked after every 10 s. The buffer is lost then, and
// counted. Stop ends one whose bytes cannot be understood any more. Neither begins again: the
// one who has opened it learns it once, by its function failed, and decides what becomes of
// the session.
//
// # The folder
//
// DIR/2026-11-23/225301-<session>.cast: times are UTC, and a session's name is random. Nothing
// that a user or a cluster has chosen is in a path. Folders have mode 0700 and files 0600. They are made
// new, never opened again for writing, and reached by os.Root, so that no link leads elsewhere.
// Only names of this form are ever looked at or removed.
//
// Several processes may share the folder. All count all files, once in 30 s, and their own at once:
//
//   - MaxFile bounds one file.
//   - MaxTotal bounds all. To make room the oldest file that is not open of the user who has most is
//     removed, and none of a user who has less than the one whose file needs the room; if there is
//     none, there is no room. So is ENOSPC.
//   - MaxAge is since the last change of a file.
//
// A file counts as open while this process writes it, and five minutes after its last change,
// because another process may have it: each touches those that it has open with every count.
//
// A user who writes as much as MaxTotal makes their own recordings go, and of others only what those
// have beyond an equal share. Copy recordings that have to outlive that elsewhere. A process reads
// in the first lines whose the files of other processes are, once.
//
// A volume may hang. No lock is held while it works; what waits for it are the
// goroutines of recordings, and at most 16 that open files, for 5 s each as far as the user is concerned.
//
// # The Service
//
// In the place of a folder a server may take recordings: each is one PUT of the same path below
// a URL, of the type application/x-asciicast, chunked, over a TLS connection of its own. The server is
// asked first (Expect: 100-continue). It must say 100 within 5 s, and answers 2xx when it has read
// and kept everything.
//
//   - Nothing is sent twice. A request that breaks leaves a beginning at the server, whose last
//     chunk is missing: bytes at the server are bytes of the session, in their order, or are not there.
//   - An answer before the end, a connection that ends, and 10 s in which the server reads nothing
//     are failures of the recording, whatever the policy. So is an end without a good answer in
//     30 s; the session has ended then, too, and this is said by failed nonetheless.
//   - Nothing is overwritten, removed or read: PUT with "If-None-Match: *" is the only request, so a
//     credential for it can be one that adds only. A session that the cluster refuses leaves
//     a recording that says so.
//   - MaxFile holds, MaxTotal and MaxAge do not: they are the server's business.
//   - Besides the buffer, up to 36 KiB in net/http and what the kernels of both ends keep are on their way.
//
// No redirect is followed, and no HTTP proxy is used. Errors have two texts: that for users says
// nothing of addresses.
//
// # Files
//
// store.go has the recordings that are open, recording.go one of them, uploads.go the Service,
// folder.go the folder with the files that are open, files.go what is in it and what is removed,
// place.go what a place for recordings does. reader.go reads the lines of a recording, encode.go
// writes them.
package recording
