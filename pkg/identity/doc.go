// Package identity is the one place that says what things are called where a
// name decides about trust or routing: certificate subjects, the roles they
// stand for, the host names that stand for a managed cluster in a dial, and
// the addon's object names that upstream's users depend on.
//
// Everything here is a pure function of strings. Whether a certificate is
// genuine is the business of package pki and of crypto/tls; this package only
// says what a genuine name means. A name that does not match exactly means
// nothing: there is no trimming, no folding of case and no prefix match.
package identity
