// Package identity holds every name that decides about trust or routing: certificate
// subjects, the roles they stand for, the host names that stand for a managed cluster
// in a dial, default ports, and the addon's object names that upstream's users depend
// on.
//
// Everything here is a pure function of strings. Package pki and crypto/tls decide
// whether a certificate is genuine; this package only says what a genuine name means. A
// name that does not match exactly means nothing: there is no trimming, no folding of
// case and no prefix match.
package identity
