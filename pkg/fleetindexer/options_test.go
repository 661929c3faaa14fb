package fleetindexer

import (
	"strings"
	"testing"
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
