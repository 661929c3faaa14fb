package fleetindexer

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"as they are":                  {func(*Options) {}, ""},
		"no resource":                  {func(o *Options) { o.Resources = nil }, "--resources"},
		"Secrets":                      {func(o *Options) { o.Resources = []string{"pods", "secrets"} }, "secrets"},
		"a subresource":                {func(o *Options) { o.Resources = []string{"pods/log"} }, "pods/log"},
		"no certificate":               {func(o *Options) { o.ProxyCert = "" }, "--proxy-cert"},
		"no port":                      {func(o *Options) { o.Port = -1 }, "--port"},
		"rights of the past":           {func(o *Options) { o.StaleRightsSeconds = -1 }, "--stale-rights-seconds"},
		"no rows":                      {func(o *Options) { o.MaxRows = 0 }, "--max-rows-per-cluster"},
		"replicas without a name":      {func(o *Options) { o.Store, o.Replica = "postgres://db/index", "" }, "--replica"},
		"replicas without a namespace": {func(o *Options) { o.Store, o.Namespace = "postgres://db/index", "" }, "--namespace"},
	} {
		o := NewOptions()
		o.Resources, o.Replica, o.Namespace = []string{"pods", "deployments.apps", "pods"}, "a", "ns"
		o.ProxyCACert, o.ProxyCert, o.ProxyKey, o.AgentCACert = "a", "b", "c", "d"
		c.change(o)
		if err := o.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if got := len(o.indexed()); c.want == "" && got != 2 {
			t.Errorf("%d resources are indexed", got)
		}
	}
}

// TestStoreOfEnvironment has a URL with a password, which no help shows.
func TestStoreOfEnvironment(t *testing.T) {
	const secret = "postgres://index:secret@db/index"
	t.Setenv("FLEET_INDEX_STORE", secret)
	o, fs := NewOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(fs)
	if o.Store != secret || strings.Contains(fs.FlagUsages(), "secret@") {
		t.Errorf("the store is %q, and help is %s", o.Store, fs.FlagUsages())
	}
	if err := fs.Parse([]string{"--store=a.db"}); err != nil || o.Store != "a.db" {
		t.Errorf("--store is %q, %v", o.Store, err)
	}
	t.Setenv("FLEET_INDEX_STORE", "")
	if got := NewOptions().Store; got != defaultStore {
		t.Errorf("without the variable it is %q", got)
	}
}
