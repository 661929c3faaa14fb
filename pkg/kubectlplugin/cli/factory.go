package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
)

var (
	// ErrNotGood says by the exit status that something is not as it should be.
	ErrNotGood = errors.New("not everything is good")
	// ErrNoCluster is for a user who may reach nothing.
	ErrNoCluster error = notGood("there is no cluster that you may reach: ask an administrator of the hub for ClusterRole cluster-proxy-user or cluster-proxy-viewer")
)

// notGood is ErrNotGood with words of its own.
type notGood string

func (e notGood) Error() string        { return string(e) }
func (e notGood) Is(target error) bool { return target == ErrNotGood }

// Factory is what all commands share: the kubeconfig, its flags, and where text goes.
type Factory struct {
	// Files and Overrides choose the kubeconfig and what flags say instead of it.
	Files     *clientcmd.ClientConfigLoadingRules
	Overrides *clientcmd.ConfigOverrides
	// Out and Err take text; what could harm a terminal is escaped.
	Out, Err io.Writer
	// Bytes and ByteErr are the same without protection of the terminal.
	Bytes, ByteErr io.Writer
	// interactive says that somebody looks at err.
	interactive bool
	// saidHub says that the user knows that another server is asked than the context's.
	saidHub bool
}

// Loader returns the kubeconfig with what flags say instead.
func (p *Factory) Loader() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(p.Files, p.Overrides)
}

// HubConfig returns how to reach the hub of the current context.
func (p *Factory) HubConfig() (*rest.Config, error) {
	config, err := p.Loader().ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, p.noHub()
	case err != nil && p.Overrides.Context.Cluster != "":
		return nil, fmt.Errorf("loading the hub's kubeconfig: %w: --cluster names an entry of the kubeconfig; give managed clusters without a flag, as in: kubectl clusterproxy status %s", err, p.Overrides.Context.Cluster)
	case err != nil:
		return nil, fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	config.Host = p.goOnWithHub(config.Host)
	config.QPS = -1                           // commands bound how much they ask at a time
	config.WarningHandler = rest.NoWarnings{} // client-go logs them; the errors that they come with say the same
	return config, nil
}

// noHub says why a kubeconfig has no hub, which client-go calls empty.
func (p *Factory) noHub() error {
	config, err := p.Loader().RawConfig()
	if err != nil {
		return fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	files := strings.Join(p.Files.GetLoadingPrecedence(), " or ")
	name := cmp.Or(p.Overrides.CurrentContext, config.CurrentContext)
	switch chosen := config.Contexts[name]; {
	case len(config.Contexts) == 0 && len(config.Clusters) == 0:
		return fmt.Errorf("there is no kubeconfig of the hub in %s: set KUBECONFIG, or use --kubeconfig", files)
	case chosen == nil:
		return fmt.Errorf("the kubeconfig %s has no current context: kubectl config use-context NAME, or --context", files)
	default:
		return fmt.Errorf("context %q of the kubeconfig %s is of cluster %q, which is not in it", name, files, chosen.Cluster)
	}
}

// Hub returns a client of the hub.
func (p *Factory) Hub() (*kubernetes.Clientset, error) {
	config, err := p.HubConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Arguments refuses another number of arguments than from least to most. The command's use says what they are.
func Arguments(least, most int) cobra.PositionalArgs {
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

// longHelp has what holds for all commands.
const longHelp = `Reach the managed clusters of this hub, one by one and all at once.

The commands ask the hub with your own kubeconfig. If the current context leads to a cluster or a view, they ask its hub.

Exit status, of all commands:
  0  it is done, and what was asked about is good
  1  something is not good: a cluster is away, there is none that you may reach, versions differ, a check or a test failed
  2  it could not be done or found out: the command is wrong, the hub does not answer or refuses`

// NewRoot returns the command without those below it, and what they share.
func NewRoot(out, errOut io.Writer) (*cobra.Command, *Factory) {
	p := &Factory{Files: clientcmd.NewDefaultClientConfigLoadingRules(), Overrides: &clientcmd.ConfigOverrides{}, Bytes: out, ByteErr: errOut, interactive: isTerminal(errOut)}
	out, errOut = Terminal{out}, Terminal{errOut}
	p.Out, p.Err = out, errOut
	root := &cobra.Command{
		Use:           "kubectl-clusterproxy",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl clusterproxy"},
		Short:         "Reach the managed clusters of this hub, one by one and all at once",
		Long:          longHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// kubectl's own flags select the hub and the user.
	root.PersistentFlags().StringVar(&p.Files.ExplicitPath, "kubeconfig", "", "the hub's kubeconfig; without it $KUBECONFIG, then ~/.kube/config")
	flags := clientcmd.RecommendedConfigOverrideFlags("")
	flags.ClusterOverrideFlags.InsecureSkipTLSVerify.LongName = "" // there is no such thing here
	clientcmd.BindOverrideFlags(p.Overrides, root.PersistentFlags(), flags)
	root.CompletionOptions.HiddenDefaultCmd = true // kubectl completes, with kubectl_complete-clusterproxy
	root.SetOut(out)
	root.SetErr(errOut)
	// A command's own flags would drown in those that choose the hub.
	root.SetUsageTemplate(inheritedFlags.ReplaceAllLiteralString(root.UsageTemplate(), hubFlags))
	return root, p
}

// inheritedFlags is the part of cobra's template that lists the flags of the root command.
var inheritedFlags = regexp.MustCompile(`(?s)\{\{if \.HasAvailableInheritedFlags\}\}.*?\{\{end\}\}`)

// hubFlags is what commands say of these instead.
const hubFlags = `{{if .HasAvailableInheritedFlags}}

"{{.Root.CommandPath}} --help" lists the flags that choose the hub, the user and the namespace, such as --context.{{end}}`

// ExitStatus returns the status with which every command exits: see longHelp.
func ExitStatus(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrNotGood):
		return 1
	}
	return 2
}

// belowHub is the server of a context that the command kubeconfig has made.
var belowHub = regexp.MustCompile(`^(.*)` + regexp.QuoteMeta("/apis/"+v1alpha1.GroupVersion.String()) + `/(cluster|fleetview)s/([^/]+)/` + v1alpha1.ProxySubresource + `/?$`)

// SplitServer is the hub's server, and which of its clusters or views a server leads to. The target
// is empty for a server that is the hub itself.
func SplitServer(server string) (hub, target string) {
	parts := belowHub.FindStringSubmatch(server)
	if parts == nil {
		return server, ""
	}
	return parts[1], parts[2] + " " + parts[3]
}

// goOnWithHub is the hub's server. It says once that the context leads to something below it.
func (p *Factory) goOnWithHub(server string) (hub string) {
	hub, target := SplitServer(server)
	if target != "" && !p.saidHub {
		p.saidHub = true
		fmt.Fprintf(p.Err, "Your context leads to %s; this command asks its hub, %s\n", OneLine(target), OneLine(hub))
	}
	return hub
}
