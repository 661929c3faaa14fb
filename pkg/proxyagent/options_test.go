package proxyagent

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestBadFlagsAreNamed(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--cluster-name=Not_A_Name", "--ca-cert=", "--agent-identifiers=host=x"}, "--cluster-name"},
		{[]string{"--cluster-name=c"}, "is empty"},
		{[]string{"--graceful-shutdown-timeout=-1s"}, "--graceful-shutdown-timeout"},
		{[]string{"--enable-port-forward-proxy"}, "--hub-kubeconfig"},
		{[]string{"--enable-port-forward-proxy", "--hub-kubeconfig=x", "--proxy-server-host=hub"}, "--proxy-server-host"},
		{[]string{"--oidc-issuer-url=https://issuer.example.org"}, "--oidc-client-id"},
		{[]string{"--oidc-issuer-url=http://issuer.example.org", "--oidc-client-id=a"}, "https URL"},
		{[]string{"--agent-identifiers=planet=earth"}, "planet"},
		{[]string{"--agent-cert=x"}, "--agent-key"},
		{[]string{"--proxy-server-port=0"}, "--proxy-server-port"},
		{[]string{"--enable-contention-profiling"}, "--enable-profiling"},
		{[]string{"--sync-interval=1m"}, "--sync-interval-cap"},
	} {
		options := NewOptions()
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		options.AddFlags(flags)
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want one line that names %q", test.args, err, test.want)
		}
	}
}
