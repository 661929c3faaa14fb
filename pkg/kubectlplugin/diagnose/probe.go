package diagnose

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

const (
	// probeLog is how much of a log is read.
	probeLog = 4096
	// echoed is what the command in a pod prints.
	echoed = "cluster-proxy"
)

// probeOptions are the flags of test.
type probeOptions struct {
	output, exec string
}

// probed is the outcome of one request. Its IDs begin with "test-".
type probed struct {
	finding // Skipped says that the request was not sent
	// Milliseconds is how long the request took; a watch counts until it is open.
	Milliseconds float64 `json:"milliseconds,omitempty"`
}

// TestCommand returns the command test.
func TestCommand(p *cli.Factory) *cobra.Command {
	var o probeOptions
	cmd := &cobra.Command{
		Use:   "test CLUSTER",
		Short: "Send one request of each kind to a cluster, as you, and time it",
		Long: `Send one request of each kind to a cluster, as you, and time it: a GET, a POST that asks who you are there, a LIST and a watch of pods, and
the end of a pod's log. --exec runs "echo" in a pod too. Pods are those of the namespace of your context, or of --namespace. Nothing is changed.

A request that the cluster's own RBAC refuses counts as failed: it names the right that you lack.`,
		Example:           "  kubectl clusterproxy test cluster1\n  kubectl clusterproxy test cluster1 --namespace=web --exec=shop-0 -o json",
		Args:              cli.Arguments(1, 1),
		ValidArgsFunction: p.CompleteOneCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return runTest(cmd.Context(), p, args[0], o) },
	}
	cli.OutputFlag(cmd, &o.output)
	cmd.Flags().StringVar(&o.exec, "exec", "", "a pod in which to run echo")
	return cmd
}

func runTest(ctx context.Context, p *cli.Factory, cluster string, o probeOptions) error {
	if strings.HasPrefix(cluster, "@") {
		return fmt.Errorf("%q is a view: name a cluster of it; kubectl clusterproxy views shows which of its clusters do not answer", cluster)
	}
	config, err := p.ConfigFor(ctx, cluster)
	if err != nil {
		return err
	}
	namespace, _, err := p.Loader().Namespace()
	if err != nil {
		return fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	progress := p.StartProgress()
	t := &prober{cluster: cluster, namespace: namespace, config: config, client: client, doing: progress.Doing}
	t.all(ctx, strings.TrimPrefix(o.exec, "pod/"))
	progress.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	if printed, err := p.Print(o.output, cli.ListOf("FindingList", t.found)); err != nil {
		return err
	} else if !printed {
		printAllProbed(p, t.found)
	}
	for _, f := range t.found {
		if f.isBad() {
			return cli.ErrNotGood
		}
	}
	return nil
}

// printAllProbed writes what to do once, at the end: one cause fails several requests.
func printAllProbed(p *cli.Factory, found []probed) {
	var remedies []string
	for _, f := range found {
		printProbed(p, f)
		if f.Remedy != "" && !slices.Contains(remedies, f.Remedy) {
			remedies = append(remedies, f.Remedy)
		}
	}
	for _, remedy := range remedies {
		fmt.Fprintf(p.Out, "→ %s\n", cli.OneLine(remedy))
	}
}

func printProbed(p *cli.Factory, f probed) {
	if f.Skipped {
		fmt.Fprintf(p.Out, "- %-14s skipped: %s\n", f.ID, cli.OneLine(f.Text))
		return
	}
	mark := "√"
	if !f.OK {
		mark = "×"
	}
	fmt.Fprintf(p.Out, "%s %-14s %7.1f ms  %s\n", mark, f.ID, f.Milliseconds, cli.OneLine(f.Text))
}

// prober sends requests to a cluster.
type prober struct {
	cluster, namespace string
	config             *rest.Config
	client             kubernetes.Interface
	doing              func(what string)
	found              []probed
}

// errSkip is the reason why a request is not sent.
type errSkip string

func (e errSkip) Error() string { return string(e) }

// try sends a request. It returns what was found, or an error.
func (t *prober) try(ctx context.Context, id string, send func(ctx context.Context) (text string, err error)) bool {
	t.doing("trying " + strings.TrimPrefix(id, "test-"))
	ctx, cancel := context.WithTimeout(ctx, cli.ProbeTimeout)
	defer cancel()
	f := probed{finding: finding{ID: id, Cluster: t.cluster}}
	began := time.Now()
	text, err := send(ctx)
	f.Milliseconds = float64(time.Since(began).Microseconds()) / 1000
	var skip errSkip
	switch {
	case errors.As(err, &skip):
		f.Skipped, f.Text, f.Milliseconds = true, skip.Error(), 0
	case err != nil:
		f.Text, f.Remedy = err.Error(), cli.RemedyOf(err, t.cluster)
	default:
		f.OK, f.Text = true, text
	}
	t.found = append(t.found, f)
	return err == nil
}

// all sends one request of each kind.
func (t *prober) all(ctx context.Context, execPod string) {
	reached := t.try(ctx, "test-get", func(ctx context.Context) (string, error) {
		var v version.Info
		err := cli.Get(ctx, t.client, "/version", &v)
		return "GET /version: Kubernetes " + v.GitVersion, err
	})
	if !reached {
		return // the others would say the same
	}
	t.try(ctx, "test-whoami", func(ctx context.Context) (string, error) {
		review, err := t.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("you are %q there, of groups %s", review.Status.UserInfo.Username, strings.Join(review.Status.UserInfo.Groups, ", ")), nil
	})
	pods, listed := t.client.CoreV1().Pods(t.namespace), ""
	t.try(ctx, "test-list", func(ctx context.Context) (string, error) {
		list, err := pods.List(ctx, metav1.ListOptions{Limit: 500})
		if err != nil {
			return "", err
		}
		listed = list.ResourceVersion
		return fmt.Sprintf("pods of namespace %s: %d", t.namespace, len(list.Items)+int(ptr.Deref(list.RemainingItemCount, 0))), nil
	})
	t.try(ctx, "test-watch", func(ctx context.Context) (string, error) {
		w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: listed, TimeoutSeconds: ptr.To(int64(cli.ProbeTimeout.Seconds()))})
		if err != nil {
			return "", err
		}
		w.Stop()
		return "of the same pods: open", nil
	})
	t.try(ctx, "test-logs", t.logs)
	t.try(ctx, "test-exec", func(ctx context.Context) (string, error) {
		if execPod == "" {
			return "", errSkip("--exec=POD runs echo in a pod of namespace " + t.namespace)
		}
		return t.exec(ctx, execPod)
	})
}

// logs reads the end of the log of some pod that runs.
func (t *prober) logs(ctx context.Context) (string, error) {
	pods := t.client.CoreV1().Pods(t.namespace)
	running, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running", Limit: 1})
	if err != nil {
		return "", err
	}
	if len(running.Items) == 0 || len(running.Items[0].Spec.Containers) == 0 {
		return "", errSkip("no pod runs in namespace " + t.namespace + "; choose another one with --namespace")
	}
	pod := &running.Items[0]
	body, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{Container: pod.Spec.Containers[0].Name, LimitBytes: ptr.To(int64(probeLog)), TailLines: ptr.To(int64(10))}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, probeLog))
	return fmt.Sprintf("of pod %s: %d bytes", pod.Name, len(text)), err
}

// exec runs echo in a pod. As kubectl does, it reads the pod first, and asks for a WebSocket, whose refusal is no Status.
func (t *prober) exec(ctx context.Context, pod string) (string, error) {
	if _, err := t.client.CoreV1().Pods(t.namespace).Get(ctx, pod, metav1.GetOptions{}); err != nil {
		return "", err
	}
	request := t.client.CoreV1().RESTClient().Post().Namespace(t.namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"echo", echoed}, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(t.config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var out, errOut bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}); err != nil {
		return "", fmt.Errorf("running echo in pod %q: %w %s", pod, err, errOut.String())
	}
	if strings.TrimSpace(out.String()) != echoed {
		return "", fmt.Errorf("echo %s in pod %q printed %.100q", echoed, pod, out.String())
	}
	return "echo in pod " + pod, nil
}
