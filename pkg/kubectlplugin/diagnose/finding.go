package diagnose

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

const (
	hubAPI = "hub-api"
	// hubClusters is the finding that says which clusters there are for the user: it is not about
	// the hub's parts.
	hubClusters = "hub-clusters"
	// hubTunnels is the finding about proxy servers, by what clusters answer.
	hubTunnels = "hub-tunnels"
)

// finding is the outcome of one check. IDs do not change between releases.
type finding struct {
	ID      string `json:"id"`
	Cluster string `json:"cluster,omitempty"`
	OK      bool   `json:"ok"`
	// Text says what was found, and Remedy what to do about it if it is bad.
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
	// Optional checks do not fail the command.
	Optional bool `json:"optional,omitempty"`
	// Skipped says that it was not looked at, and Text why.
	Skipped bool `json:"skipped,omitempty"`

	hop cli.Hop
}

// isBad reports whether a finding fails the command.
func (f finding) isBad() bool { return !f.OK && !f.Optional && !f.Skipped }

// unread is a finding about something that could not be read.
func (f finding) unread(what string, err error) finding {
	f.Text = fmt.Sprintf("%s cannot be read: %v", what, err)
	f.Skipped = apierrors.IsForbidden(err)
	f.Optional = true
	return f
}

// goodOf is errNotGood if one of the findings is bad.
func goodOf(findings []finding) error {
	for _, f := range findings {
		if f.isBad() {
			return cli.ErrNotGood
		}
	}
	return nil
}

// printFinding writes a finding by itself.
func printFinding(p *cli.Factory, f finding) {
	where := "hub"
	if f.Cluster != "" {
		where = f.Cluster
	}
	f.Text = where + ": " + f.Text
	printBelow(p, "", f)
}

// printBelow writes a finding below a heading.
func printBelow(p *cli.Factory, indent string, f finding) {
	mark := "√"
	switch {
	case f.Skipped:
		mark = "-"
	case !f.OK && f.Optional:
		mark = "‼"
	case !f.OK:
		mark = "×"
	}
	fmt.Fprintf(p.Out, "%s%s %-18s %s\n", indent, mark, f.ID, cli.OneLine(f.Text))
	if !f.OK && f.Remedy != "" {
		fmt.Fprintf(p.Out, "%s  %-18s → %s\n", indent, "", cli.OneLine(f.Remedy))
	}
}
