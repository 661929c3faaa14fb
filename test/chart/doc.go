// Package chart tests the hub chart as Helm renders it: what it makes of the sets
// of values in testdata/rendered, object by object; what the schema refuses; that
// pods are restricted and rights are few, whatever the values; and that every flag
// in the chart is one that the binary has.
//
// Rendering cannot show the order in which Helm installs the CRD and an object of its
// kind: test/e2e does, with the real helm.
package chart
