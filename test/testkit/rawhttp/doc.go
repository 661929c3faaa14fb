// Package rawhttp writes HTTP as no client library does, for tests of servers: a
// corpus of requests that two parsers may take for different numbers of requests
// (request smuggling), and requests of HTTP/2 made of any header fields. A Recorder
// says which requests arrived behind the server.
//
// Files: smuggling.go has the corpus, http2.go the frames, and recorder.go the
// server that records.
package rawhttp
