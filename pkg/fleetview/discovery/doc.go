// Package discovery answers for what a fleet view serves: /api, /apis, /version and OpenAPI.
//
// A view serves the union of what its members serve. Each is asked as the user, once a minute, and
// what it answers is known for that user only, parsed and kept once per content. Where members
// differ, it is as most of them say (catalog.Union); /version is that of the oldest release that two
// members have. All parts of an answer are bounded together, and parsing takes turns. A resource in no
// answer may be new: members whose answers are older than a second are asked again before a 404. A
// member that does not answer is left out with a Warning, or its answer of the last ten minutes is
// used. Requests for objects ask no member for discovery.
//
// # Files
//
//	discovery.go  answers /api, /apis and /version
//	swagger.go    answers /openapi/v2
//	document.go   answers with the OpenAPI v3 document that two members have
//	openapi.go    answers the index of /openapi/v3
//	answer.go     negotiation, ETags and missing clusters of those answers
//	catalog.go    what the members serve together
//	ask.go        asks members
//	fetch.go      the requests to one member, for servers with and without aggregated discovery
//	cache.go      Discovery: what members have answered, for a while
package discovery
