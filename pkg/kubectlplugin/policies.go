package kubectlplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// policiesPath is where the hub keeps AccessPolicies.
var policiesPath = "/apis/" + v1alpha1.GroupVersion.String() + "/accesspolicies"

func policiesCommand(p *cli.Factory) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "policies [POLICY...]",
		Short: "Show the policies on requests to clusters, and which of them cannot be evaluated",
		Long: `Show the AccessPolicies: whose requests each selects, to which clusters, what becomes of a request of which
a rule is not true, and whether the rules compile. A policy that does not compile refuses what it selects. You need
the right to list accesspolicies, as ClusterRole cluster-proxy-policy-author has. A request that a policy refuses says so to
its user, who needs no such right.`,
		Example: "  kubectl clusterproxy policies\n  kubectl clusterproxy policies no-secrets -o yaml",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return p.Complete(cmd, args, func(ctx context.Context, hub kubernetes.Interface) (names []cobra.Completion, err error) {
				found, err := listPolicies(ctx, hub)
				for _, policy := range found {
					names = append(names, policy.Name)
				}
				return names, err
			})
		},
		RunE: func(cmd *cobra.Command, args []string) error { return showPolicies(cmd.Context(), p, args, output) },
	}
	cli.OutputFlag(cmd, &output, "name", "wide")
	return cmd
}

func listPolicies(ctx context.Context, hub kubernetes.Interface) ([]v1alpha1.AccessPolicy, error) {
	var list v1alpha1.AccessPolicyList
	err := cli.Get(ctx, hub, policiesPath, &list)
	switch {
	case apierrors.IsNotFound(err):
		return nil, errors.New("the hub does not know AccessPolicies: the CRD accesspolicies." + v1alpha1.GroupVersion.Group + " is not installed; helm upgrade installs it, and its notes say what to do if it may not")
	case err != nil:
		return nil, fmt.Errorf("listing policies: %w", err)
	}
	for i := range list.Items {
		list.Items[i].ManagedFields = nil // kubectl does not show them either
		list.Items[i].TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AccessPolicy"}
	}
	return list.Items, nil
}

func showPolicies(ctx context.Context, p *cli.Factory, names []string, output string) error {
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	found, err := listPolicies(ctx, hub)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(found, func(policy v1alpha1.AccessPolicy) bool { return policy.Name == name }) {
			return fmt.Errorf("no policy %q; see: kubectl clusterproxy policies", name)
		}
	}
	if len(names) > 0 {
		found = slices.DeleteFunc(found, func(policy v1alpha1.AccessPolicy) bool { return !slices.Contains(names, policy.Name) })
	}
	printed, err := p.Print(output, v1alpha1.AccessPolicyList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AccessPolicyList"}, Items: append([]v1alpha1.AccessPolicy{}, found...)})
	if err == nil && !printed {
		err = policyTable(p, found, output == "wide")
	}
	if err == nil && slices.ContainsFunc(found, func(policy v1alpha1.AccessPolicy) bool { return notCompiled(&policy) != "" }) {
		err = cli.ErrNotGood
	}
	return err
}

// policyTable prints a table of policies, and why some do not compile.
func policyTable(p *cli.Factory, found []v1alpha1.AccessPolicy, wide bool) error {
	if len(found) == 0 {
		fmt.Fprintln(p.Err, "There is no policy.")
		return nil
	}
	t := cli.NewTable("Name", "Mode", "Subjects", "Clusters", "Compiled")
	t.AddWide("Rules", "Age")
	for i := range found {
		policy, compiled := &found[i], "<unknown>"
		if c := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionTypeAccessPolicyCompiled); c != nil {
			compiled = string(c.Status)
		}
		var subjects, rules []string
		for _, subject := range policy.Spec.Subjects {
			subjects = append(subjects, subject.Kind+" "+strings.TrimPrefix(subject.Namespace+"/"+subject.Name, "/"))
		}
		for _, rule := range policy.Spec.Rules {
			rules = append(rules, rule.Name)
		}
		t.Add(policy.Name, string(cmp.Or(policy.Spec.Mode, v1alpha1.ModeEnforce)), cmp.Or(strings.Join(subjects, ","), "<everybody>"), clustersOf(&policy.Spec.Clusters), compiled,
			strings.Join(rules, ","), ago(&policy.CreationTimestamp))
	}
	if err := p.PrintTable(t, wide); err != nil {
		return err
	}
	for i := range found {
		if wrong := notCompiled(&found[i]); wrong != "" {
			fmt.Fprintf(p.Err, "policy %s: %s\n", cli.OneLine(found[i].Name), cli.OneLine(wrong))
		}
	}
	return nil
}

// clustersOf says which clusters a policy selects.
func clustersOf(clusters *v1alpha1.FleetViewClusters) string {
	var terms []string
	for _, set := range clusters.ClusterSets {
		terms = append(terms, "set "+set)
	}
	terms = append(terms, clusters.Names...)
	if clusters.Selector != nil {
		terms = append(terms, metav1.FormatLabelSelector(clusters.Selector))
	}
	return cmp.Or(strings.Join(terms, ","), "<all>")
}

// notCompiled is what the hub says is wrong with a policy.
func notCompiled(policy *v1alpha1.AccessPolicy) string {
	return whyFalse(policy.Status.Conditions, v1alpha1.ConditionTypeAccessPolicyCompiled)
}
