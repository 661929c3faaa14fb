package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"

	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// defaultHits is how many rows are shown, and hitsPerPage how many are asked for at a time.
const defaultHits, hitsPerPage = 500, 500

// search is one search.
type search struct {
	view, countBy, output string
	limit                 int
}

// found and counted are what the hub answers.
type found struct {
	metav1.TypeMeta `json:",inline"`
	indexapi.SearchAnswer
}

type counted struct {
	metav1.TypeMeta `json:",inline"`
	indexapi.CountAnswer
}

func searchCommand(p *cli.Factory) *cobra.Command {
	s := search{}
	cmd := &cobra.Command{
		Use:   "search [QUERY...]",
		Short: "Find objects of all clusters by words, kind, state, label or image",
		Long: `Find objects in the hub's fleet index, in the clusters of a view that you may list in.

A query is words and keys, and an object must match all of them. A word is found in names, labels, images, owners, nodes and
what kubectl prints of an object. Keys are cluster, kind, namespace, name, status, node, label and image:
kind:pod,deployment is one of them, namespace:!kube-* is none of these, and label:app=web is a label. Words in "quotes"
follow each other; quote them for the shell too. --namespace=shop is as namespace:shop; the namespace of the kubeconfig's
context means nothing here.

The index shows what you may list in each cluster. Standard error names clusters of which it could not find that out, and those
that are away, whose objects are as of when they were last heard. With --output=name a line is what kubectl takes in the
context of the view.`,
		Example: `  kubectl clusterproxy search log4j
  kubectl clusterproxy search kind:pod status:CrashLoopBackOff cluster:eu-*
  kubectl clusterproxy search kind:pod --count-by cluster,status
  kubectl clusterproxy search kind:pod image:nginx:1.25 -o name | xargs -L1 kubectl --context fleet get`,
		ValidArgsFunction: completeSearch(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.run(cmd.Context(), p, strings.Join(args, " "))
		},
	}
	cli.OutputFlag(cmd, &s.output, "name", "wide")
	cmd.Flags().StringVar(&s.view, "view", cli.ViewAll, "the view whose clusters are searched")
	cmd.Flags().StringVar(&s.countBy, "count-by", "", "count objects by these keys instead of showing them: some of cluster, kind, namespace, status and node, with commas")
	cmd.Flags().IntVar(&s.limit, "limit", defaultHits, "how many objects to show; 0 means all")
	if err := errors.Join(cmd.RegisterFlagCompletionFunc("view", p.CompleteViews), cmd.RegisterFlagCompletionFunc("count-by", completeCountBy)); err != nil {
		panic(err) // the flags are above
	}
	return cmd
}

func (s *search) run(ctx context.Context, p *cli.Factory, text string) error {
	if wrong := content.IsPathSegmentName(s.view); len(wrong) > 0 || s.view == "" {
		return fmt.Errorf("--view is %q, which cannot be the name of a view", s.view)
	}
	if s.limit < 0 {
		return fmt.Errorf("--limit is %d: it must not be less than 0", s.limit)
	}
	text, err := inNamespace(text, p.Overrides.Context.Namespace)
	if err != nil {
		return err
	}
	if _, err := query.Parse(text); err != nil {
		return err
	}
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	progress := p.StartProgress()
	defer progress.Done()
	progress.Doing("searching")
	if s.countBy != "" {
		var answer counted
		if err := s.ask(ctx, hub, url.Values{"q": {text}, "countBy": {s.countBy}}, &answer); err != nil {
			return err
		}
		progress.Done()
		return s.showCounts(p, &answer)
	}
	answer, err := s.hits(ctx, hub, text)
	if err != nil {
		return err
	}
	progress.Done()
	return s.show(p, answer)
}

// inNamespace restricts a query to the namespace of the flag, if there is one.
func inNamespace(text, namespace string) (string, error) {
	if namespace == "" {
		return text, nil
	}
	if wrong := content.IsDNS1123Label(namespace); len(wrong) > 0 {
		return "", fmt.Errorf("--namespace is %q, which cannot be the name of a namespace: put several, and patterns, into the query, as in namespace:shop,team-*", namespace)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s:%s", text, query.Namespace, namespace)), nil
}

// ask asks the hub.
func (s *search) ask(ctx context.Context, hub kubernetes.Interface, values url.Values, into any) error {
	path := "/apis/" + clusterproxy.GroupVersion.String() + "/fleetviews/" + s.view + "/" + clusterproxy.SearchSubresource
	err := cli.Get(ctx, hub, path+"?"+values.Encode(), into)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("searching in view %q: %w; %s", s.view, err, cli.RemedyOf(err, ""))
	}
	if err != nil {
		return fmt.Errorf("searching in view %q: %w", s.view, err)
	}
	return nil
}

// hits returns all pages as one, up to the limit.
func (s *search) hits(ctx context.Context, hub kubernetes.Interface, text string) (*found, error) {
	all := &found{}
	for {
		page, values := found{}, url.Values{"q": {text}}
		limit := hitsPerPage
		if s.limit > 0 {
			limit = min(limit, s.limit-len(all.Hits))
		}
		values.Set("limit", strconv.Itoa(limit))
		if all.Continue != "" {
			values.Set("continue", all.Continue)
		}
		if err := s.ask(ctx, hub, values, &page); err != nil {
			return nil, err
		}
		all.TypeMeta, all.Continue, all.More = page.TypeMeta, page.Continue, max(all.More, page.More)
		all.Hits = append(all.Hits, page.Hits...)
		merge(&all.Away, page.Away)
		merge(&all.Incomplete, page.Incomplete)
		merge(&all.Undecided, page.Undecided)
		mergeCount(&all.Partly, &all.PartlyIn, page.Partly, page.PartlyIn)
		mergeCount(&all.Denied, &all.DeniedIn, page.Denied, page.DeniedIn)
		all.Unknown = page.Unknown
		merge(&all.Unindexed, page.Unindexed)
		if all.Continue == "" || len(page.Hits) == 0 || s.limit > 0 && len(all.Hits) >= s.limit {
			return all, nil
		}
	}
}

func merge[V any](into *map[string]V, from map[string]V) {
	if *into == nil {
		*into = map[string]V{}
	}
	maps.Copy(*into, from)
}

// mergeCount has the number of clusters, and some of their names, of the page with the most.
func mergeCount(into *int, names *[]string, from int, of []string) {
	if from > *into {
		*into, *names = from, of
	}
}

// show prints what was found.
func (s *search) show(p *cli.Factory, answer *found) error {
	warnOf(p, &answer.Basis)
	if s.output != "name" {
		if printed, err := p.Print(s.output, answer); printed || err != nil {
			return err
		}
	}
	if len(answer.Hits) == 0 {
		fmt.Fprintln(p.Err, "No resources found in the fleet index")
		return nil
	}
	if s.output == "name" {
		showNames(p, answer.Hits)
	} else if err := s.showTable(p, answer.Hits); err != nil {
		return err
	}
	if answer.Continue != "" {
		fmt.Fprintf(p.Err, "There are more than %d; --limit=0 shows all\n", len(answer.Hits))
	}
	return nil
}

func (s *search) showTable(p *cli.Factory, hits []indexapi.Hit) error {
	t := cli.NewTable("Cluster", "Namespace", "Kind", "Name", "Status", "Age")
	t.AddWide("Node", "Images")
	for _, hit := range hits {
		created := metav1.NewTime(hit.Created)
		t.Add(hit.Cluster, hit.Namespace, hit.Kind, hit.Name, hit.Status, ago(&created), hit.Node, strings.Join(hit.Images, ","))
	}
	return p.PrintTable(t, s.output == "wide")
}

// ago is how long ago t was.
func ago(t *metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// showNames prints what kubectl takes as arguments.
func showNames(p *cli.Factory, hits []indexapi.Hit) {
	for _, hit := range hits {
		resource := hit.Resource
		if group, _, ok := strings.Cut(hit.APIVersion, "/"); ok {
			resource += "." + group
		}
		line := fmt.Sprintf("%s/%s@%s", resource, hit.Name, hit.Cluster)
		if hit.Namespace != "" {
			line += " -n " + hit.Namespace
		}
		fmt.Fprintln(p.Out, cli.OneLine(line))
	}
}

// showCounts prints how many there are.
func (s *search) showCounts(p *cli.Factory, answer *counted) error {
	warnOf(p, &answer.Basis)
	if s.output == "name" {
		return errors.New("--output=name is for objects, and --count-by shows none")
	}
	if printed, err := p.Print(s.output, answer); printed || err != nil {
		return err
	}
	if answer.Total == 0 {
		fmt.Fprintln(p.Err, "No resources found in the fleet index")
		return nil
	}
	t := cli.NewTable(append(strings.Split(s.countBy, ","), "Count")...)
	left := answer.Total
	for _, count := range answer.Counts {
		t.Add(append(slices.Clone(count.Values), strconv.FormatInt(count.N, 10))...)
		left -= count.N
	}
	if err := p.PrintTable(t, false); err != nil {
		return err
	}
	if left > 0 {
		fmt.Fprintf(p.Err, "%d more are in %s not shown: search for less, or count by less\n", left, cli.Count(answer.Left, "count"))
	}
	return nil
}

// warnOf says what an answer is based on, if that is less than all there is.
func warnOf(p *cli.Factory, basis *indexapi.Basis) {
	warn := func(format string, values ...any) {
		fmt.Fprintln(p.Err, cli.OneLine("Warning: "+fmt.Sprintf(format, values...)))
	}
	for _, name := range slices.Sorted(maps.Keys(basis.Away)) {
		warn("cluster %s was last heard at %s; its objects are as of then", name, basis.Away[name].UTC().Format(time.RFC3339))
	}
	for _, of := range []struct {
		why          map[string]string
		what, effect string
	}{
		{basis.Incomplete, "is incomplete in the fleet index", "some of its objects are not found"},
		{basis.Undecided, "could not decide what you may see", "objects of it are not shown"},
		{basis.Unindexed, "is not in the fleet index", "its objects are not found"},
	} {
		for _, name := range slices.Sorted(maps.Keys(of.why)) {
			warn("cluster %s %s (%s); %s", name, of.what, of.why[name], of.effect)
		}
	}
	for _, name := range basis.Unknown {
		warn("there is no cluster %s in this view that you may search: look at the name, or ask for the right to it", name)
	}
	if basis.Denied > 0 {
		warn("in %s you may not list all of these kinds; such objects are not shown", few(basis.Denied, basis.DeniedIn))
	}
	if basis.Partly > 0 {
		warn("in %s you may list some namespaces at most; objects in them may be missing: name the namespaces, as in namespace:a,b, and few clusters", few(basis.Partly, basis.PartlyIn))
	}
	if basis.More > 0 {
		warn("%s more: the answer says so of their objects too", cli.Count(basis.More, "cluster"))
	}
}

// few says how many clusters there are, and which, or some of them.
func few(n int, names []string) string {
	text := cli.Count(n, "cluster")
	if len(names) == 0 {
		return text
	}
	text += " (" + strings.Join(names, ", ")
	if more := n - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ")"
}

// searchKeys are those that a query may have.
var searchKeys = []query.Key{query.Cluster, query.Kind, query.Namespace, query.Name, query.Status, query.Node, query.Label, query.Image}

// completeSearch completes keys, and the names of clusters behind theirs.
func completeSearch(p *cli.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := string(query.Cluster) + ":"
		if strings.HasPrefix(toComplete, before) {
			names, directive := p.CompleteClusters(cmd, nil, "")
			for i := range names {
				names[i] = before + names[i]
			}
			return names, directive
		}
		var keys []cobra.Completion
		for _, key := range searchKeys {
			keys = append(keys, string(key)+":")
		}
		return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// completeCountBy completes the last of some keys.
func completeCountBy(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := toComplete[:strings.LastIndexByte(toComplete, ',')+1]
	var keys []cobra.Completion
	for _, key := range query.Counted {
		keys = append(keys, before+string(key))
	}
	return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
