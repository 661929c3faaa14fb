// Package rawhttp writes HTTP as no client library does, for tests of servers: a
// corpus of requests that two parsers may take for different numbers of requests
// (request smuggling), and requests of HTTP/2 made of any header fields.
package rawhttp
