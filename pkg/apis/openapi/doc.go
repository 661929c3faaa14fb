// Package openapi has the schemas of the kinds that the proxy API serves, generated from
// their Go types by make generate. kubectl explain shows them, and server-side apply needs
// every field.
package openapi
