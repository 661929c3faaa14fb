// Package e2e holds the scenarios that a user of the addon lives through. They
// take kubeconfigs and addresses, so the same scenarios run against the lab
// that TestMain starts and against any clusters where the addon is installed.
//
// Every scenario that is about the Kubernetes API runs once per door: straight
// at the managed kube-apiserver, which shows what right looks like, and through
// the proxy API. A scenario asserts the same of both.
//
// What kwok cannot do is left to real nodes: the exit code of an exec'ed
// command, and the end of its standard input.
package e2e
