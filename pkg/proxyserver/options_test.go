package proxyserver

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"":                                       func(*Options) {},
		"--server-ca-cert is empty: it must be":  func(o *Options) { o.ServerCACert = "" },
		"--cluster-ca-cert is empty: it must be": func(o *Options) { o.ClusterCACert = "" },
		"--agent-port is 65536: it must be":      func(o *Options) { o.AgentPort = 65536 },
		"--keepalive-time is 1ms: it must be at least 1s": func(o *Options) { o.KeepaliveTime = time.Millisecond },
		"--graceful-shutdown-timeout is -1ns: it must be": func(o *Options) { o.GracefulShutdownTimeout = -1 },
		"--tls-min-version": func(o *Options) { o.TLSMinVersion = "VersionTLS10" },
		"--enable-contention-profiling is true: it must be": func(o *Options) { o.EnableContentionProfiling = true },
		"--server-count is 0: it must be at least 1":        func(o *Options) { o.ServerCount = 0 },
		"--server-id is empty: it must be":                  func(o *Options) { o.ServerID = "" },
	} {
		o := NewOptions()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(flags)
		if err := flags.Parse([]string{
			"--server-cert=a", "--server-key=b", "--server-ca-cert=c",
			"--cluster-cert=d", "--cluster-key=e", "--cluster-ca-cert=f",
		}); err != nil {
			t.Fatal(err)
		}
		change(o)
		err := o.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("Validate = %v, want %q", err, want)
		}
	}
}
