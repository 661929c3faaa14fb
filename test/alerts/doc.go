// Package alerts tests the alerts and dashboards that the hub's chart has for
// Prometheus and Grafana.
//
// promtool checks the rules, runs the tests in testdata, which show that each alert
// fires and that it ends, and parses each query of the dashboards. That the metrics
// exist, and that each alert is explained, package test/rules checks without building
// anything.
package alerts
