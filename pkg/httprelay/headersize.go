package httprelay

// MaxHeaderBytes bounds the headers of one request or answer, trailers and
// informational answers included, on every hop: what a peer may have another
// process keep in memory before it is known what the headers say. Requests of
// clients are refused far below it, so that what the hub knows of a user, 500
// groups and more, fits in beside them.
const MaxHeaderBytes = 256 << 10
