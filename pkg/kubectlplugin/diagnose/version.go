package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"

	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

const (
	partPlugin = "plugin"
	partAgent  = "proxy agent"
)

// part is what runs with one version.
type part struct {
	Part string `json:"part"`
	// Version is the image's tag or digest. It is empty if it is not known, and Because says why.
	Version string `json:"version,omitempty"`
	Image   string `json:"image,omitempty"`
	Because string `json:"because,omitempty"`
	// Pods is how many pods of a Deployment have the image, and PodsOf how many it has.
	Pods   int32 `json:"pods,omitempty"`
	PodsOf int32 `json:"podsOf,omitempty"`
	// Clusters are those whose agent is meant.
	Clusters []string `json:"clusters,omitempty"`
}

// versions is what the command prints.
type versions struct {
	metav1.TypeMeta `json:",inline"`

	Parts []part `json:"parts"`
	// Skew says which parts differ, and what to do. It is empty if those that are known agree.
	Skew []string `json:"skew"`
}

// VersionCommand returns the command version.
func VersionCommand(p *cli.Factory) *cobra.Command {
	var output string
	var client bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the plugin, of the addon's parts on the hub and of its agents",
		Long: `Show the versions of the plugin, of the addon's parts on the hub and of its agents, and whether they differ.

A version is the tag of an image, or its digest if it has no tag. Those of the hub's parts are in its Deployments. That of a
cluster's agent is in the configuration that the cluster has applied last, by what the hub knows; whether its pods have followed
already, the cluster alone knows. It says "not known", with the reason, where you may not read something. No cluster is asked.`,
		Example: "  kubectl clusterproxy version\n  kubectl clusterproxy version --client\n  kubectl clusterproxy version -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return showVersions(cmd.Context(), p, output, client) },
	}
	cli.OutputFlag(cmd, &output)
	cmd.Flags().BoolVar(&client, "client", false, "the plugin's alone; no hub is asked")
	return cmd
}

func showVersions(ctx context.Context, p *cli.Factory, output string, client bool) error {
	found := newVersions()
	var failed error
	if !client {
		progress := p.StartProgress()
		var hub kubernetes.Interface
		if hub, failed = p.Hub(); failed == nil {
			found, _, failed = readVersions(ctx, hub, progress.Doing)
		}
		progress.Done()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if printed, err := p.Print(output, found); err != nil {
		return err
	} else if !printed {
		if err := printVersions(p, found, client); err != nil {
			return err
		}
	}
	switch {
	case failed != nil:
		return failed
	case len(found.Skew) > 0:
		return cli.ErrNotGood
	case !client && found.known() == 0:
		return errors.New("no version is known but the plugin's")
	}
	return nil
}

// newVersions has the plugin's alone.
func newVersions() versions {
	return versions{TypeMeta: metav1.TypeMeta{APIVersion: clusterproxy.GroupVersion.String(), Kind: "Versions"}, Parts: []part{pluginVersion()}, Skew: []string{}}
}

// known is of how many parts on the hub and on clusters the version is known.
func (v versions) known() (n int) {
	for _, p := range v.Parts {
		if p.Version != "" && p.Part != partPlugin {
			n++
		}
	}
	return n
}

// readVersions asks the hub with three requests, however many clusters it has. It returns the
// addons too that it read for them. Its error says that nothing is known of the hub.
func readVersions(ctx context.Context, hub kubernetes.Interface, doing func(what string)) (found versions, of []addonv1alpha1.ManagedClusterAddOn, err error) {
	found = newVersions()
	doing("reading the configuration")
	var configurations unstructured.UnstructuredList
	if err := cli.Get(ctx, hub, cli.ConfigurationsPath, &configurations); err != nil {
		return found, nil, fmt.Errorf("reading the configuration: %w; --client shows the plugin's version alone", err)
	}
	if len(configurations.Items) == 0 {
		return found, nil, errors.New("there is no ManagedProxyConfiguration: is the chart installed?")
	}
	namespace, _, _ := unstructured.NestedString(configurations.Items[0].Object, "spec", "proxyServer", "namespace")
	doing("reading Deployments")
	var deployments appsv1.DeploymentList
	if err := cli.Get(ctx, hub, "/apis/apps/v1/namespaces/"+namespace+"/deployments", &deployments); err != nil {
		found.Parts = append(found.Parts, part{Part: "parts of the hub", Because: "Deployments cannot be listed: " + err.Error()})
	} else {
		found.Parts = append(found.Parts, hubVersions(deployments.Items)...)
	}
	doing("reading the addons of all clusters")
	var addons addonv1alpha1.ManagedClusterAddOnList
	if err := cli.Get(ctx, hub, cli.AddonAPI+"/managedclusteraddons?fieldSelector=metadata.name%3D"+identity.AddonName, &addons); err != nil {
		found.Parts = append(found.Parts, part{Part: partAgent, Because: "ManagedClusterAddOns cannot be listed: " + err.Error()})
	} else {
		found.Parts = append(found.Parts, agentVersions(configurations.Items, addons.Items)...)
	}
	found.Skew = append(found.Skew, skewOf(found.Parts)...)
	return found, addons.Items, nil
}

// release is the plugin's version. hack/release sets it.
var release string

func pluginVersion() part {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	found := part{Part: partPlugin, Version: release}
	if release == "" {
		found.Because = developmentBuild(info)
	}
	return found
}

// developmentBuild says of which commit a plugin without a release is: the version that Go
// makes up for it is later than every release, and is none.
func developmentBuild(info *debug.BuildInfo) string {
	commit := "an unknown commit"
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 7 {
			commit = "commit " + s.Value[:7]
		}
	}
	return "it is a development build of " + commit
}

// hubParts are the Deployments of the hub, by a label that each has. The optional ones need not be there, and
// clusters are reached without them.
var hubParts = []struct {
	name, label, value string
	optional           bool
}{
	{name: "addon manager", label: "component", value: "cluster-proxy-manager"},
	{name: "proxy server", label: "proxy.open-cluster-management.io/component-name", value: "proxy-server"},
	{name: "proxy API", label: "component", value: "cluster-proxy-addon-user"},
	{name: "fleet index", label: "component", value: "cluster-proxy-fleet-index", optional: true},
}

func hubVersions(deployments []appsv1.Deployment) (found []part) {
	for _, p := range hubParts {
		before := len(found)
		for i := range deployments {
			d := &deployments[i]
			if d.Labels[p.label] != p.value || len(d.Spec.Template.Spec.Containers) == 0 {
				continue
			}
			image := d.Spec.Template.Spec.Containers[0].Image
			of := part{Part: p.name, Version: tagOf(image), Image: image, Pods: d.Status.UpdatedReplicas, PodsOf: d.Status.Replicas}
			if d.Status.ObservedGeneration < d.Generation {
				of.Pods = 0 // the status is about an older image
			}
			found = append(found, of)
		}
		if len(found) == before && !p.optional {
			found = append(found, part{Part: p.name, Because: "the addon's namespace has no such Deployment"})
		}
	}
	return found
}

// agentVersions returns one part for each version, and one for each reason why it is not known.
func agentVersions(configurations []unstructured.Unstructured, addons []addonv1alpha1.ManagedClusterAddOn) (found []part) {
	images := map[string]string{} // by what OCM compares configurations by
	for i := range configurations {
		image, _, _ := unstructured.NestedString(configurations[i].Object, "spec", "proxyAgent", "image")
		if hash, err := utils.GetSpecHash(&configurations[i]); err == nil {
			images[hash] = image
		}
	}
	for i := range addons {
		addon := &addons[i]
		if addon.Name != identity.AddonName {
			continue
		}
		of := part{Part: partAgent, Because: "no configuration has been applied there yet"}
		for _, reference := range addon.Status.ConfigReferences {
			if reference.Resource != "managedproxyconfigurations" || reference.LastAppliedConfig == nil {
				continue
			}
			of.Because = "what was applied there is not the present configuration"
			if image, ok := images[reference.LastAppliedConfig.SpecHash]; ok {
				of = part{Part: partAgent, Version: tagOf(image), Image: image}
			}
		}
		at := slices.IndexFunc(found, func(p part) bool { return p.Image == of.Image && p.Because == of.Because })
		if at < 0 {
			at, found = len(found), append(found, of)
		}
		found[at].Clusters = append(found[at].Clusters, addon.Namespace)
	}
	slices.SortFunc(found, func(a, b part) int { return cmp.Compare(len(b.Clusters), len(a.Clusters)) })
	if len(found) == 0 {
		found = []part{{Part: partAgent, Because: "no cluster has the addon"}}
	}
	return found
}

// tagOf is the version that the name of an image says: its tag or, without one, its digest.
func tagOf(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	_, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	return cmp.Or(tag, digest, "latest")
}

// skewOf says how parts differ.
func skewOf(parts []part) (skew []string) {
	var onHub []string // versions
	var said []string
	for _, p := range parts {
		if p.Part == partPlugin || p.Part == partAgent || p.Version == "" {
			continue
		}
		if !slices.Contains(onHub, p.Version) {
			onHub = append(onHub, p.Version)
		}
		said = append(said, p.Part+" "+p.Version)
		if p.Pods < p.PodsOf {
			skew = append(skew, fmt.Sprintf("%d of %d pods of the %s do not have version %s yet; see: kubectl get pods -A -l open-cluster-management.io/addon=%s", p.PodsOf-p.Pods, p.PodsOf, p.Part, p.Version, identity.AddonName))
		}
	}
	if len(onHub) > 1 {
		skew = append(skew, "parts of the hub differ: "+strings.Join(said, ", ")+"; helm upgrade with one tag for all makes them one")
	}
	for _, p := range parts {
		if len(onHub) == 0 || p.Version != "" && slices.Contains(onHub, p.Version) {
			continue
		}
		switch {
		case p.Part == partPlugin && p.Version != "":
			skew = append(skew, fmt.Sprintf("the plugin is %s and the hub %s: take the plugin of the hub's release", p.Version, strings.Join(onHub, ", ")))
		case p.Part == partAgent && p.Version != "":
			skew = append(skew, fmt.Sprintf("agents of %s have version %s, which the hub does not have: value proxyAgentImage of the chart names it", cli.Count(len(p.Clusters), "cluster"), p.Version))
		case p.Part == partAgent && len(p.Clusters) > 0:
			skew = append(skew, fmt.Sprintf("agents of %s may differ, because %s: %s; see: kubectl get managedclusteraddon -n %s %s -o yaml",
				cli.Count(len(p.Clusters), "cluster"), p.Because, cli.SomeOf(p.Clusters), p.Clusters[0], identity.AddonName))
		}
	}
	return skew
}

func printVersions(p *cli.Factory, found versions, client bool) error {
	t := cli.NewTable("Part", "Version", "Where")
	known := 0
	for _, one := range found.Parts {
		version, where := one.Version, "here"
		if one.Version == "" {
			version, where = "not known", "because "+one.Because
		} else {
			known++
		}
		switch {
		case len(one.Clusters) > 0 && one.Version == "":
			where = cli.Count(len(one.Clusters), "cluster") + ", " + where
		case len(one.Clusters) > 0:
			where = cli.Count(len(one.Clusters), "cluster")
		case one.Version != "" && one.Part != partPlugin:
			where = fmt.Sprintf("%d of %d pods", one.Pods, one.PodsOf)
		}
		t.Add(one.Part, version, where)
	}
	if err := p.PrintTable(t, false); err != nil {
		return err
	}
	for _, line := range found.Skew {
		fmt.Fprintln(p.Err, "Skew:", cli.OneLine(line))
	}
	switch {
	case client, len(found.Skew) > 0, found.known() == 0:
	case known == len(found.Parts):
		fmt.Fprintln(p.Err, "All parts have the same version.")
	default:
		fmt.Fprintln(p.Err, "The parts whose version is known do not differ.")
	}
	return nil
}
