package proxyconfig

import (
	"slices"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/health"
)

// canonicalArgs writes arguments as --flag=value: upstream hands on whatever its
// flags parse, such as -v=2, a value in an argument of its own, and no value for
// true; and processes take _ for - in the name of a flag. An argument that is no flag stays
// as it is, for check to refuse.
func canonicalArgs(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name := strings.TrimLeft(arg, "-")
		if name == arg || name == "" {
			out = append(out, arg)
			continue
		}
		flag, value, ok := strings.Cut(name, "=")
		if !ok {
			value = "true"
			if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++
				value = args[i]
			}
		}
		out = append(out, "--"+strings.ReplaceAll(flag, "_", "-")+"="+value)
	}
	return out
}

// ignoredServiceProxyFlags are flags of upstream's service proxy that have no effect
// here: connections are pooled per cluster and per kube-apiserver, tokens are reviewed
// on the hub, and the agent uses its kube-apiserver's API for a Lease only. To refuse
// them would stop the whole configuration.
var ignoredServiceProxyFlags = []string{
	"--max-idle-conns", "--idle-conn-timeout", "--tls-handshake-timeout", "--expect-continue-timeout",
	"--token-review-cache-ttl", "--kube-api-qps", "--kube-api-burst",
}

// ignoredProxyServerFlags are flags of konnectivity's server that have no effect here: agents
// are routed to by host, and clients choose their protocol themselves.
var ignoredProxyServerFlags = []string{
	"--proxy-strategies", "--mode", "--backend-dial-timeout", "--frontend-keepalive-time", "--xfr-channel-size", "--delete-existing-uds-file",
}

// IgnoredFlags returns the flags of a configuration that this release ignores, by the field
// that has them; it is empty if there are none.
func IgnoredFlags(c *v1alpha1.ManagedProxyConfiguration) string {
	_, ofServer := proxyServerArgs(c)
	_, ofServiceProxy := serviceProxyArgs(c)
	var fields []string
	for _, of := range []struct {
		field string
		flags []string
	}{{"spec.proxyServer.additionalArgs", ofServer}, {"spec.proxyAgent.additionalServiceProxyArgs", ofServiceProxy}} {
		if len(of.flags) > 0 {
			fields = append(fields, of.field+": "+strings.Join(of.flags, ", "))
		}
	}
	return strings.Join(fields, "; ")
}

// proxyServerArgs returns the arguments of a configuration that the proxy server has, and the
// flags of those that it ignores.
func proxyServerArgs(c *v1alpha1.ManagedProxyConfiguration) (args, ignored []string) {
	for _, arg := range canonicalArgs(c.Spec.ProxyServer.AdditionalArgs) {
		if flag, _, _ := strings.Cut(arg, "="); slices.Contains(ignoredProxyServerFlags, flag) {
			ignored = append(ignored, flag)
		} else {
			args = append(args, arg)
		}
	}
	return args, ignored
}

// drainTimeout is what upstream's service proxy calls --graceful-shutdown-timeout.
const drainTimeout = "--drain-timeout="

// serviceProxyArgs returns the arguments of a configuration that the agent has, by its
// names for them, and the flags of those that it ignores.
func serviceProxyArgs(c *v1alpha1.ManagedProxyConfiguration) (args, ignored []string) {
	for _, arg := range canonicalArgs(c.Spec.ProxyAgent.AdditionalServiceProxyArgs) {
		if flag, _, _ := strings.Cut(arg, "="); slices.Contains(ignoredServiceProxyFlags, flag) {
			ignored = append(ignored, flag)
		} else if timeout, ok := strings.CutPrefix(arg, drainTimeout); ok {
			args = append(args, "--graceful-shutdown-timeout="+timeout)
		} else {
			args = append(args, arg)
		}
	}
	return args, ignored
}

// exitTime is for how long a process may take to exit once it has drained.
const exitTime = 20 * time.Second

// Drain returns what the last of the arguments --flag=duration says, as the processes read
// them. Without one that can be read it is 0: the process says what is wrong with it.
func Drain(args []string, flag string) time.Duration {
	var last time.Duration
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			last, _ = time.ParseDuration(value)
		}
	}
	return max(last, 0)
}

// grace is for how many seconds a proxy server with these arguments may drain and exit. A
// pod that is killed before cuts its connections.
func grace(args []string) int64 {
	drain := health.LongestLull*Drain(args, "min-drain-duration") + Drain(args, "graceful-shutdown-timeout")
	return int64((drain + exitTime) / time.Second)
}
