// Package flags is what the four processes have in common about their flags:
// how a wrong value is reported, and how a kubeconfig is found.
//
// A component's options have AddFlags and Validate, and its New calls Validate.
// Validate reports all that is wrong, in the order of its checks, each in one
// form: the flag, its value, and what it must be.
//
//   - errors.go: Errors, the checks of values that several components make.
//   - kubeconfig.go: RESTConfig, from a flag, $KUBECONFIG or the pod's service account.
package flags
