// Package hop is what makes one hop of HTTP cheap: the proxy API and the agent's
// handler are two reverse proxies in a row, and what a hop costs is paid twice.
// Measured with processes of their own (test/bench/api-profile.md), most of it is
// goroutines and processes that wake each other, not encryption. So:
//
//   - Kept is a few HTTP/1.1 connections for reads, each used by one request at a
//     time, by the goroutine that wants the answer. HTTP/2 hands a request from
//     goroutine to goroutine four times, sends header, body and end as records of
//     their own, and encodes headers against a table that every request changes.
//   - Gather passes a document on in one piece, and not as it came.
//   - EndTogether leaves out the flush after a body's last byte, so that the end
//     of an answer travels with it.
//   - GrowStack is for the goroutine that HTTP/2 makes for each request.
package hop
