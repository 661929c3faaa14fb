package kubectlplugin

import (
	"io"
	"strings"
	"testing"
)

// TestArguments wants a wrong number of arguments refused with what is missing, and how to go on.
func TestArguments(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"test"}, "name one CLUSTER, not 0: kubectl clusterproxy test CLUSTER; see --help"},
		{[]string{"test", "@all"}, `"@all" is a view: name a cluster of it; kubectl clusterproxy views shows which of its clusters do not answer`},
		{[]string{"proxy"}, "name one CLUSTER|@VIEW, not 0: kubectl clusterproxy proxy CLUSTER|@VIEW; see --help"},
		{[]string{"services", "a", "b"}, "name one CLUSTER at most, not 2: kubectl clusterproxy services [CLUSTER]; see --help"},
		{[]string{"replay"}, "name one FILE, not 0: kubectl clusterproxy replay FILE; see --help"},
		{[]string{"pass", "create"}, "name one NAME, not 0: kubectl clusterproxy pass create NAME; see --help"},
		{[]string{"pass", "revoke"}, "name one PASS at least, not 0: kubectl clusterproxy pass revoke PASS...; see --help"},
	} {
		if _, _, err := run(t, "none", test.args...); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %q", test.args, err, test.want)
		}
	}
}

// TestHelp wants commands below headings, a sentence for each, an example of each, and its own
// flags without those that choose the hub.
func TestHelp(t *testing.T) {
	root := newCommand(io.Discard, io.Discard)
	commands := root.Commands()
	for _, cmd := range root.Commands() {
		if cmd.GroupID == "" {
			t.Errorf("%s is below no heading", cmd.Name())
		}
		commands = append(commands, cmd.Commands()...)
	}
	for _, cmd := range commands {
		if cmd.Short == "" || strings.ContainsAny(cmd.Short, ";.") || len(cmd.Short) > 100 {
			t.Errorf("%s: %q, want one short sentence", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Example == "" && !cmd.HasSubCommands() {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
	}
	for _, args := range [][]string{{"status"}, {"check"}, {"pass", "create"}} {
		out, _, err := run(t, "none", append(args, "--help")...)
		if err != nil || strings.Contains(out, "--tls-server-name") || !strings.Contains(out, `"kubectl clusterproxy --help" lists the flags that choose the hub`) {
			t.Errorf("%s: %v\n%s\nwant its own flags only, and where the others are", args, err, out)
		}
	}
	out, _, err := run(t, "none", "--help")
	for _, want := range []string{"\nStart:\n", "\nWhen something is wrong:\n", "\nMore:\n", "Exit status", "--context string"} {
		if !strings.Contains(out, want) {
			t.Errorf("%v, %q is not in\n%s", err, want, out)
		}
	}
	if _, _, err := run(t, "none", "login"); err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("login: %v, want kubeconfig as a suggestion", err)
	}
}
