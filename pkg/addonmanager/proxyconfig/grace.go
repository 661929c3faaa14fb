package proxyconfig

import (
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/health"
)

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
