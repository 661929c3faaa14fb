package kubectlplugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

var (
	// errNotGood says by the exit status that something is not as it should be.
	errNotGood = errors.New("not everything is good")
	// errNoCluster is for a user who may reach nothing.
	errNoCluster error = notGood("there is no cluster that you may reach: ask an administrator of the hub for ClusterRole cluster-proxy-user or cluster-proxy-viewer")
)

// notGood is errNotGood with words of its own.
type notGood string

func (e notGood) Error() string        { return string(e) }
func (e notGood) Is(target error) bool { return target == errNotGood }

// groupPath is where the hub serves clusters.
var groupPath = "/apis/" + v1alpha1.GroupVersion.String() + "/" + v1alpha1.Resource

// managedClustersPath is where OCM keeps what it knows of clusters.
const managedClustersPath = "/apis/cluster.open-cluster-management.io/v1/managedclusters"

// longHelp has what holds for all commands.
const longHelp = `Reach the managed clusters of this hub, one by one and all at once.

The commands ask the hub with your own kubeconfig. If the current context leads to a cluster or a view, they ask its hub.

Exit status, of all commands:
  0  it is done, and what was asked about is good
  1  something is not good: a cluster is away, there is none that you may reach, versions differ, a check or a test failed
  2  it could not be done or found out: the command is wrong, the hub does not answer or refuses`

// plugin is what all commands share.
type plugin struct {
	files     *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
	out, err  io.Writer
	// bytes and byteErr are the same without protection of the terminal.
	bytes, byteErr io.Writer
	// interactive says that somebody looks at err.
	interactive bool
	// saidHub says that the user knows that another server is asked than the context's.
	saidHub bool
}

// Run runs a command of the plugin and returns its exit status. The arguments are those after
// the program's name.
func Run(ctx context.Context, args []string, out, errOut io.Writer) (status int) {
	cmd := newCommand(out, errOut)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err != nil && err != errNotGood { // what is wrong was said already
		fmt.Fprintln(terminal{errOut}, "error:", err)
	}
	return exitStatus(err)
}

// exitStatus is that of every command: see longHelp.
func exitStatus(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNotGood):
		return 1
	}
	return 2
}

func newCommand(out, errOut io.Writer) *cobra.Command {
	p := &plugin{files: clientcmd.NewDefaultClientConfigLoadingRules(), overrides: &clientcmd.ConfigOverrides{}, bytes: out, byteErr: errOut, interactive: isTerminal(errOut)}
	out, errOut = terminal{out}, terminal{errOut}
	p.out, p.err = out, errOut
	root := &cobra.Command{
		Use:           "kubectl-clusterproxy",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl clusterproxy"},
		Short:         "Reach the managed clusters of this hub, one by one and all at once",
		Long:          longHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// kubectl's own flags select the hub and the user.
	root.PersistentFlags().StringVar(&p.files.ExplicitPath, "kubeconfig", "", "the hub's kubeconfig; without it $KUBECONFIG, then ~/.kube/config")
	flags := clientcmd.RecommendedConfigOverrideFlags("")
	flags.ClusterOverrideFlags.InsecureSkipTLSVerify.LongName = "" // there is no such thing here
	clientcmd.BindOverrideFlags(p.overrides, root.PersistentFlags(), flags)
	root.CompletionOptions.HiddenDefaultCmd = true // kubectl completes, with kubectl_complete-clusterproxy
	root.SetOut(out)
	root.SetErr(errOut)
	addGroup(root, "Start:", p.statusCommand(), p.kubeconfigCommand(), p.viewsCommand(), p.servicesCommand(), p.whoamiCommand())
	addGroup(root, "When something is wrong:", p.checkCommand(), p.testCommand(), p.versionCommand(), p.bundleCommand())
	addGroup(root, "More:", p.proxyCommand(), p.passCommand(), p.replayCommand())
	root.SetHelpCommandGroupID("More:")
	// A command's own flags would drown in those that choose the hub.
	root.SetUsageTemplate(inheritedFlags.ReplaceAllLiteralString(root.UsageTemplate(), hubFlags))
	return root
}

// inheritedFlags is the part of cobra's template that lists the flags of the root command.
var inheritedFlags = regexp.MustCompile(`(?s)\{\{if \.HasAvailableInheritedFlags\}\}.*?\{\{end\}\}`)

// hubFlags is what commands say of these instead.
const hubFlags = `{{if .HasAvailableInheritedFlags}}

"{{.Root.CommandPath}} --help" lists the flags that choose the hub, the user and the namespace, such as --context.{{end}}`

// addGroup adds commands below a heading.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
	}
	root.AddCommand(commands...)
}

func (p *plugin) loader() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(p.files, p.overrides)
}

func (p *plugin) hubConfig() (*rest.Config, error) {
	config, err := p.loader().ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, p.noHub()
	case err != nil && p.overrides.Context.Cluster != "":
		return nil, fmt.Errorf("loading the hub's kubeconfig: %w: --cluster names an entry of the kubeconfig; give managed clusters without a flag, as in: kubectl clusterproxy status %s", err, p.overrides.Context.Cluster)
	case err != nil:
		return nil, fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	config.Host = p.goOnWithHub(config.Host)
	config.QPS = -1                           // commands bound how much they ask at a time
	config.WarningHandler = rest.NoWarnings{} // client-go logs them; the errors that they come with say the same
	return config, nil
}

// noHub says why a kubeconfig has no hub, which client-go calls empty.
func (p *plugin) noHub() error {
	config, err := p.loader().RawConfig()
	if err != nil {
		return fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	files := strings.Join(p.files.GetLoadingPrecedence(), " or ")
	name := cmp.Or(p.overrides.CurrentContext, config.CurrentContext)
	switch chosen := config.Contexts[name]; {
	case len(config.Contexts) == 0 && len(config.Clusters) == 0:
		return fmt.Errorf("there is no kubeconfig of the hub in %s: set KUBECONFIG, or use --kubeconfig", files)
	case chosen == nil:
		return fmt.Errorf("the kubeconfig %s has no current context: kubectl config use-context NAME, or --context", files)
	default:
		return fmt.Errorf("context %q of the kubeconfig %s is of cluster %q, which is not in it", name, files, chosen.Cluster)
	}
}

func (p *plugin) hub() (*kubernetes.Clientset, error) {
	config, err := p.hubConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// request is a GET of a path that may have a query. The path of the server's URL, if it has one,
// comes before it.
func request(client kubernetes.Interface, path string) (*rest.Request, error) {
	path, query, _ := strings.Cut(path, "?")
	request := client.Discovery().RESTClient().Get().AbsPath(path)
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("parsing the query %q: %w", query, err)
	}
	for name := range values {
		request.Param(name, values.Get(name))
	}
	return request, nil
}

// get asks the hub for a JSON object, at a path that may have a query.
func get(ctx context.Context, hub kubernetes.Interface, path string, into any) error {
	request, err := request(hub, path)
	if err != nil {
		return err
	}
	return answer(ctx, request, path, into)
}

// answer reads the hub's answer to a request, which is a JSON object.
func answer(ctx context.Context, request *rest.Request, path string, into any) error {
	raw, err := request.SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		// client-go has words of its own for some codes; ours say more.
		var status metav1.Status
		if json.Unmarshal(raw, &status) == nil && status.Kind == "Status" && status.Message != "" {
			status.Message = oneLine(status.Message)
			return &apierrors.StatusError{ErrStatus: status}
		}
		var other *apierrors.StatusError
		if errors.As(err, &other) {
			other.ErrStatus.Message = oneLine(other.ErrStatus.Message)
		}
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("reading the hub's answer to %s: %w", path, err)
	}
	return nil
}

// clusters are those that the user may reach, or the named ones of them.
func clusters(ctx context.Context, hub kubernetes.Interface, names []string) ([]v1alpha1.Cluster, error) {
	var list v1alpha1.ClusterList
	if err := get(ctx, hub, groupPath, &list); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // a cluster's RBAC says the same of what is not there
			if notServed := checkServed(ctx, hub); notServed != nil {
				return nil, notServed
			}
		}
		if apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("listing clusters: %w; %s", err, remedyOf(err, ""))
		}
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	if len(names) == 0 {
		return list.Items, nil
	}
	return choose(ctx, hub, list, names)
}

// choose returns the clusters of those names.
func choose(ctx context.Context, hub kubernetes.Interface, list v1alpha1.ClusterList, names []string) ([]v1alpha1.Cluster, error) {
	var chosen []v1alpha1.Cluster
	var missing []string
	for _, name := range names {
		if name == "" {
			return nil, errors.New("the name of a cluster is empty; see: kubectl clusterproxy status")
		}
		i := slices.IndexFunc(list.Items, func(c v1alpha1.Cluster) bool { return c.Name == name })
		if i < 0 {
			missing = append(missing, name)
			continue
		}
		chosen = append(chosen, list.Items[i])
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("no cluster %s that you may reach%s; see: kubectl clusterproxy status", anyOf(missing), whyNot(ctx, hub, missing[0]))
	}
	return chosen, nil
}

// whyNot is for users who may know which clusters there are.
func whyNot(ctx context.Context, hub kubernetes.Interface, name string) string {
	var object metav1.PartialObjectMetadata
	if err := get(ctx, hub, managedClustersPath+"/"+name, &object); isMissing(err, name) {
		return fmt.Sprintf(" (there is no ManagedCluster %q)", name)
	} else if err != nil {
		return ""
	}
	if err := get(ctx, hub, addonAPI+"/namespaces/"+name+"/managedclusteraddons/"+identity.AddonName, &object); isMissing(err, identity.AddonName) {
		return fmt.Sprintf(" (ManagedCluster %q has no addon %s)", name, identity.AddonName)
	}
	return fmt.Sprintf(" (there is a ManagedCluster %q: you lack the right to it, or it is not accepted)", name)
}

// anyOf names some in quotes.
func anyOf(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	if last := len(quoted) - 1; last > 0 {
		return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
	}
	return quoted[0]
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// arguments wants that many arguments. The command's use says what they are.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		how := ""
		if least != most {
			how = map[bool]string{true: " at least", false: " at most"}[len(args) < least]
		}
		what := strings.Trim(strings.Fields(cmd.Use)[1], "[].")
		return fmt.Errorf("name one %s%s, not %d: %s; see --help", what, how, len(args), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	}
}
