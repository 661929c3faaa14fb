// Package flags has what the flags of the five processes share: how a wrong value is
// reported, how a kubeconfig is found, and which flags each process has.
//
// A component's options have AddFlags and Validate, and its New calls Validate.
// Validate reports every wrong value, in the order of its checks and in one form: the
// flag, its value, and what it must be.
//
//   - process.go, help: OfProcess, the flags of each process.
//   - errors.go: Errors, the checks of values that several components make.
//   - kubeconfig.go: RESTConfig, from a flag, $KUBECONFIG or the pod's service account.
package flags
