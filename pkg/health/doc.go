// Package health serves the probes and metrics of every process of the addon,
// so that they all mean the same:
//
//   - /livez and /healthz: the process should not be restarted, as long as it
//     answers.
//   - /readyz and /ready: the process wants traffic. They fail while a ready
//     check fails and from Drain on.
//   - /metrics: Prometheus metrics.
//
// A failing probe answers 500 and names every check that fails, as does a
// passing one with ?verbose. Checks run on each request and must be quick:
// they look at state and do no I/O. Everything that reaches
// the port can read their reports, so these hold no secrets.
//
// A process that ends calls Drain first, listens until nobody sends it connections any
// more (Arrivals), waits by AwaitIdle until its work is done, and stops the health server
// last, so that the probes tell the truth for as long as connections live.
//
// # Files
//
//	health.go  Server: probes and metrics. Admin: the port with profiles
//	drain.go   AwaitIdle, and Arrivals: when the last connection came
package health
