package identity

import (
	"net/url"
	"strings"
	"testing"
)

func TestHandlerHostIsUpstreams(t *testing.T) {
	// Vectors computed by cluster-proxy v0.11.0 for these two clusters.
	for cluster, want := range map[string]string{
		"cluster1": "cluster-a140791d2b20a847f2c74c62c384f93fb83691d871e80385.open-cluster-management.proxy",
		"loopback": "cluster-64edaa3fb9310e98cdb183cddbf156d9964a05c017fa7f8e.open-cluster-management.proxy",
	} {
		if got := HandlerHost(cluster); got != want {
			t.Errorf("HandlerHost(%q) = %q, want %q", cluster, got, want)
		}
	}
}

func TestValidateCluster(t *testing.T) {
	for name, valid := range map[string]bool{
		"cluster1": true, "1cluster": true, "a.b": true, "42": true,
		strings.Repeat("a", 253): true, strings.Repeat("a", 254): false,
		"": false, "A": false, "a..b": false, "-a": false, "a-": false, "a:b": false, "a/b": false, "a\n": false, "é": false,
	} {
		if err := ValidateCluster(name); (err == nil) != valid {
			t.Errorf("ValidateCluster(%q) = %v, want valid %v", name, err, valid)
		}
	}
}

func TestClusterFromAgentCommonName(t *testing.T) {
	for commonName, want := range map[string]string{
		AgentCommonName("cluster1"): "cluster1",
		AgentCommonName("1.b"):      "1.b",
		"":                          "",
		"open-cluster-management:cluster-proxy:proxy-agent":                      "",
		AgentCommonName("Cluster1"):                                              "",
		AgentCommonName("cluster1") + " ":                                        "",
		" " + AgentCommonName("cluster1"):                                        "",
		AgentCommonName(""):                                                      "",
		"system:open-cluster-management:cluster:a:addon:other:agent:proxy-agent": "",
		"system:open-cluster-management:cluster:a:addon:cluster-proxy:agent:x":   "",
		"system:open-cluster-management:cluster:a:addon:cluster-proxy:agent:b:addon:cluster-proxy:agent:proxy-agent": "",
	} {
		got, err := ClusterFromAgentCommonName(commonName)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("ClusterFromAgentCommonName(%q) = %q, %v; want %q", commonName, got, err, want)
		}
	}
}

func TestCheckIdentifiers(t *testing.T) {
	const ns = DefaultAgentNamespace
	own := Identifiers(Hosts("cluster1", ns))
	for declared, ok := range map[string]bool{
		own:                                true,
		"host=cluster1":                    true,
		"":                                 false,
		"host=cluster2":                    false,
		"host=cluster1&host=cluster2":      false,
		"host=cluster1.other":              false,
		"host=cluster1&default-route=true": false,
		"host=cluster1&ipv4=10.0.0.1":      false,
		"host=cluster1&cidr=0.0.0.0/0":     false,
		"host=Cluster1":                    false,
		"host=cluster1%00":                 false,
		"%zz":                              false,
		"host=" + HandlerHost("cluster2"):  false,
	} {
		if err := CheckIdentifiers(declared, "cluster1", ns); (err == nil) != ok {
			t.Errorf("CheckIdentifiers(%q) = %v, want ok %v", declared, err, ok)
		}
	}
}

// FuzzCheckIdentifiers looks for a declaration that passes and that routes
// somebody else's host, by the reading of whoever routes: konnectivity's.
func FuzzCheckIdentifiers(f *testing.F) {
	f.Add("host=cluster1", "cluster1")
	f.Add("host=cluster1&host=cluster2", "cluster1")
	f.Add("host=cluster1;host=cluster2", "cluster1")
	f.Add("host=cluster1&default-route=true", "cluster1")
	f.Add("%68ost=cluster1&host=%63luster2", "cluster1")
	f.Fuzz(func(t *testing.T, declared, cluster string) {
		if ValidateCluster(cluster) != nil || CheckIdentifiers(declared, cluster, "ns") != nil {
			return
		}
		values, err := url.ParseQuery(declared)
		if err != nil {
			t.Fatalf("%q passes and is not a query: %v", declared, err)
		}
		for kind, hosts := range values {
			for _, host := range hosts {
				if kind != "host" || host != cluster && host != cluster+".ns" && host != HandlerHost(cluster) {
					t.Fatalf("%q passes for %q with %s %q", declared, cluster, kind, host)
				}
			}
		}
	})
}

// FuzzClusterFromAgentCommonName looks for a name that is read as a cluster's
// and is not exactly what that cluster gets.
func FuzzClusterFromAgentCommonName(f *testing.F) {
	f.Add(AgentCommonName("cluster1"))
	f.Add(AgentCommonName("a:addon:cluster-proxy:agent:proxy-agent"))
	f.Fuzz(func(t *testing.T, commonName string) {
		cluster, err := ClusterFromAgentCommonName(commonName)
		if err == nil && AgentCommonName(cluster) != commonName {
			t.Fatalf("%q is read as cluster %q", commonName, cluster)
		}
	})
}
