package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
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
}

func (p *plugin) checkCommand() *cobra.Command {
	var output string
	var pre bool
	cmd := &cobra.Command{
		Use:               "check [CLUSTER...]",
		Short:             "Find out why a cluster cannot be reached, hop by hop; the exit status is 1 if one cannot",
		ValidArgsFunction: p.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			if pre {
				return p.checkBefore(cmd.Context(), output)
			}
			return p.check(cmd.Context(), args, output)
		},
	}
	outputFlag(cmd, &output, "json", "yaml")
	cmd.Flags().BoolVar(&pre, "pre", false, "find out before an upgrade, from OCM's own cluster-proxy too, what will not go on as it is")
	return cmd
}

func (p *plugin) checkBefore(ctx context.Context, output string) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	progress := p.progress()
	progress.doing("reading what is stored on the hub")
	findings := precheck(ctx, hub)
	progress.done()
	return p.printFindings(output, findings)
}

func (p *plugin) check(ctx context.Context, names []string, output string) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	progress := p.progress()
	progress.doing("asking the hub")
	findings, found := checkHub(ctx, hub, names)
	for i, cluster := range found {
		progress.doing(fmt.Sprintf("asking cluster %d of %d", i+1, len(found)))
		findings = append(findings, checkCluster(ctx, hub, cluster)...)
	}
	progress.done()
	return p.printFindings(output, findings)
}

// printFindings fails if one is bad.
func (p *plugin) printFindings(output string, findings []finding) error {
	printed, err := p.print(output, findings)
	if err != nil {
		return err
	}
	good := true
	for _, f := range findings {
		good = good && (f.OK || f.Optional)
		if !printed {
			p.printFinding(f)
		}
	}
	if !good {
		return errNotGood
	}
	return nil
}

func (p *plugin) printFinding(f finding) {
	mark := "√"
	switch {
	case !f.OK && f.Optional:
		mark = "‼"
	case !f.OK:
		mark = "×"
	}
	where := "hub"
	if f.Cluster != "" {
		where = f.Cluster
	}
	fmt.Fprintf(p.out, "%s %-18s %s: %s\n", mark, f.ID, oneLine(where), oneLine(f.Text))
	if !f.OK && f.Remedy != "" {
		fmt.Fprintf(p.out, "  %-18s %s\n", "", oneLine(f.Remedy))
	}
}

// checkHub looks at what all clusters need. It gives the clusters to look at.
func checkHub(ctx context.Context, hub kubernetes.Interface, names []string) ([]finding, []v1alpha1.Cluster) {
	reachable := finding{ID: "hub-api"}
	var v version.Info
	if err := get(ctx, hub, "/version", &v); err != nil {
		reachable.Text, reachable.Remedy = err.Error(), "look at your kubeconfig and the network to the hub"
		return []finding{reachable}, nil
	}
	reachable.OK, reachable.Text = true, "answers, Kubernetes "+v.GitVersion
	list := finding{ID: "hub-clusters"}
	found, err := clusters(ctx, hub, names)
	switch {
	case err != nil:
		list.Text, list.Remedy = err.Error(), "kubectl get apiservice "+v1alpha1.GroupVersion.Version+"."+v1alpha1.GroupVersion.Group+" says whether the proxy API is there"
	case len(found) == 0:
		list.Text, list.Remedy = "there is no cluster that you may reach", "ask for ClusterRole cluster-proxy-user or cluster-proxy-viewer on the hub"
	default:
		list.OK, list.Text = true, fmt.Sprintf("you may reach %d clusters", len(found))
	}
	return []finding{reachable, list}, found
}

// checkCluster sends requests all the way.
func checkCluster(ctx context.Context, hub kubernetes.Interface, c v1alpha1.Cluster) []finding {
	available := finding{ID: "cluster-available", Cluster: c.Name, OK: c.Status.Available == metav1.ConditionTrue, Text: "the addon is available"}
	if !available.OK {
		available.Text = fmt.Sprintf("the addon's condition Available is %s%s", c.Status.Available, why(c))
		available.Remedy = "kubectl get managedclusteraddon -n " + c.Name + " cluster-proxy -o yaml says how far it got"
	}
	api := finding{ID: "cluster-api", Cluster: c.Name}
	var v version.Info
	began := time.Now()
	if err := get(ctx, hub, groupPath+"/"+c.Name+"/"+v1alpha1.ProxySubresource+"/version", &v); err != nil {
		api.Text, api.Remedy = err.Error(), "the message says which hop failed"
		return []finding{available, api}
	}
	api.OK, api.Text = true, fmt.Sprintf("answers in %s, Kubernetes %s", time.Since(began).Round(time.Millisecond), v.GitVersion)
	return []finding{available, api, checkIdentity(ctx, hub, c.Name), checkStreams(ctx, hub, c.Name)}
}

func checkIdentity(ctx context.Context, hub kubernetes.Interface, cluster string) finding {
	f := finding{ID: "cluster-identity", Cluster: cluster}
	var identity v1alpha1.ClusterIdentity
	if err := get(ctx, hub, identityPath(cluster), &identity); err != nil {
		f.Text, f.Remedy = err.Error(), "the cluster's owner may have capped what the hub may do there"
		return f
	}
	f.OK, f.Text = true, fmt.Sprintf("you are %q there", identity.Cluster.Username)
	return f
}

func checkStreams(ctx context.Context, hub kubernetes.Interface, cluster string) finding {
	f := finding{ID: "cluster-stream", Cluster: cluster, Optional: true}
	review, err := hub.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version,
			Resource: v1alpha1.Resource, Subresource: v1alpha1.StreamSubresource, Name: cluster,
		}},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		f.Text = err.Error()
	case !review.Status.Allowed:
		f.Text, f.Remedy = "you may not exec, attach, port-forward or reach Services", "ask for the right to create clusters/stream, as ClusterRole cluster-proxy-user has it"
	default:
		f.OK, f.Text = true, "you may exec, attach, port-forward and reach Services"
	}
	return f
}
