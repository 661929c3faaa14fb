package main

import (
	"strings"
	"testing"
)

// TestCheckArgs has the addon manager refuse what the processes would not start with.
func TestCheckArgs(t *testing.T) {
	server := []string{"proxy-server", "--server-cert=a", "--server-key=a", "--server-ca-cert=a", "--cluster-cert=a", "--cluster-key=a", "--cluster-ca-cert=a"}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a server":                    {args: append(server, "--v=9", "--max-carriers=10")},
		"no carriers":                 {append(server, "--max-carriers=0"), "--max-carriers is 0: it must be at least 1"},
		"a server without its key":    {server[:2], "--server-key is empty"},
		"an agent":                    {args: []string{"proxy-agent", "--logging-format=json", "--idle-carriers=2"}},
		"no idle carriers":            {[]string{"proxy-agent", "--idle-carriers=0"}, "--idle-carriers is 0"},
		"an algorithm that is secret": {[]string{"proxy-agent", "--oidc-issuer-url=https://a", "--oidc-client-id=b", "--oidc-signing-algs=HS256"}, "--oidc-signing-algs is \"HS256\""},
	} {
		if err := checkArgs(test.args); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
