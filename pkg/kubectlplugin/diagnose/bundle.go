package diagnose

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// BundleCommand returns the command bundle.
func BundleCommand(p *cli.Factory) *cobra.Command {
	var file, direct string
	cmd := &cobra.Command{
		Use:   "bundle [CLUSTER...]",
		Short: "Collect what is needed to find a fault into one file, without credentials",
		Long: `Write into one file what somebody needs who looks for a fault: what the hub says of clusters, addon, pods, events, certificates
and rights to ask, the logs of the addon's pods, and the findings of "check". Of the clusters that are named, their side too, if
they can be reached, or if --cluster-kubeconfig says how to reach one that cannot. Secrets are not read, and what looks like a
credential is removed from everything else. The bundle has what you may read; errors.txt names the rest, with the reason.`,
		Example:           "  kubectl clusterproxy bundle\n  kubectl clusterproxy bundle cluster1 --file=for-support.tar.gz\n  kubectl clusterproxy bundle cluster1 --cluster-kubeconfig=cluster1.kubeconfig",
		ValidArgsFunction: p.CompleteClusters,
		Args: func(_ *cobra.Command, args []string) error {
			if direct != "" && len(args) != 1 {
				return fmt.Errorf("--cluster-kubeconfig is of one cluster: name one, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeBundle(cmd.Context(), p, args, file, direct)
		},
	}
	cmd.Flags().StringVar(&direct, "cluster-kubeconfig", "", "a kubeconfig of the one named cluster, to read its side without the tunnel")
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file; without it cluster-proxy-bundle-TIME.tar.gz in this folder")
	return cmd
}

func writeBundle(ctx context.Context, p *cli.Factory, names []string, file, direct string) error {
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	var cluster kubernetes.Interface
	if direct != "" {
		if cluster, err = directClient(direct); err != nil {
			return err
		}
	}
	began := time.Now()
	if file == "" {
		file = bundleFolder + "-" + began.UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	// A file under its name is complete.
	part, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-*")
	if err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}
	defer os.Remove(part.Name())
	compressed := gzip.NewWriter(part)
	progress := p.StartProgress()
	b := &bundle{hub: side{client: hub}, direct: cluster, tar: tar.NewWriter(compressed), began: began, limit: maxAnswer, says: func(what string) { progress.Doing("reading " + what) }}
	b.collect(ctx, names)
	progress.Done()
	if err := errors.Join(ctx.Err(), b.err, b.tar.Close(), compressed.Close(), part.Close()); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	if err := os.Rename(part.Name(), file); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	fmt.Fprintf(p.Out, "%s has %d files. Look through it before you give it away: it names your clusters, hosts and users.\n", file, b.files)
	if len(b.missing) > 0 {
		fmt.Fprintf(p.Err, "%d things could not be read; errors.txt in it says which and why.\n", len(b.missing))
	}
	for _, f := range b.hubFindings {
		switch {
		case f.ID == hubAPI && f.isBad():
			return fmt.Errorf("nothing of the hub could be read: %s", cli.OneLine(f.Text))
		case f.ID == hubClusters && f.isBad() && len(names) > 0:
			fmt.Fprintln(p.Err, cli.OneLine(f.Text))
			return cli.ErrNotGood
		}
	}
	return nil
}

// directClient is a client with a kubeconfig's current context.
func directClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("loading the cluster's kubeconfig: %w", err)
	}
	return kubernetes.NewForConfig(config)
}
