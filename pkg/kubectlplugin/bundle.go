package kubectlplugin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

func (p *plugin) bundleCommand() *cobra.Command {
	var file, direct string
	cmd := &cobra.Command{
		Use:   "bundle [CLUSTER...]",
		Short: "Collect what is needed to find a fault into one file, without credentials",
		Long: `Write into one file what somebody needs who looks for a fault: what the hub says of clusters, addon, pods, events, certificates
and rights to ask, the logs of the addon's pods, and the findings of "check". Of the clusters that are named, their side too, if
they can be reached, or if --cluster-kubeconfig says how to reach one that cannot. Secrets are not read, and what looks like a credential is removed from everything else. What could not be
read is in errors.txt, with the reason: the bundle has what you may read.`,
		Example:           "  kubectl clusterproxy bundle\n  kubectl clusterproxy bundle cluster1 --file=for-support.tar.gz\n  kubectl clusterproxy bundle cluster1 --cluster-kubeconfig=cluster1.kubeconfig",
		ValidArgsFunction: p.completeClusters,
		Args: func(_ *cobra.Command, args []string) error {
			if direct != "" && len(args) != 1 {
				return fmt.Errorf("--cluster-kubeconfig is of one cluster: name one, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.bundle(cmd.Context(), args, file, direct) },
	}
	cmd.Flags().StringVar(&direct, "cluster-kubeconfig", "", "a kubeconfig of the one named cluster, to read its side without the tunnel")
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file; without it cluster-proxy-bundle-TIME.tar.gz in this folder")
	return cmd
}

func (p *plugin) bundle(ctx context.Context, names []string, file, direct string) error {
	hub, err := p.hub()
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
	progress := p.progress()
	b := &bundle{hub: side{client: hub}, direct: cluster, tar: tar.NewWriter(compressed), began: began, limit: maxAnswer, says: func(what string) { progress.doing("reading " + what) }}
	b.collect(ctx, names)
	progress.done()
	if err := errors.Join(ctx.Err(), b.err, b.tar.Close(), compressed.Close(), part.Close()); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	if err := os.Rename(part.Name(), file); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	fmt.Fprintf(p.out, "%s has %d files. Look through it before you give it away: it names your clusters, hosts and users.\n", file, b.files)
	if len(b.missing) > 0 {
		fmt.Fprintf(p.err, "%d things could not be read; errors.txt in it says which and why.\n", len(b.missing))
	}
	for _, f := range b.hubFindings {
		switch {
		case f.ID == hubAPI && f.isBad():
			return fmt.Errorf("nothing of the hub could be read: %s", oneLine(f.Text))
		case f.ID == hubClusters && f.isBad() && len(names) > 0:
			fmt.Fprintln(p.err, oneLine(f.Text))
			return errNotGood
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

// side is the hub or a cluster: whom to ask, and what is before each path.
type side struct {
	client kubernetes.Interface
	prefix string
}

// bundle is one that is being written.
type bundle struct {
	hub side
	// direct asks the one named cluster without the tunnel, if that is wanted.
	direct kubernetes.Interface
	tar    *tar.Writer
	began  time.Time
	// says is told what is read.
	says  func(what string)
	files int
	// limit is how many bytes of one answer are read.
	limit int64
	// missing is what could not be read, and err the first failure to write.
	missing []string
	err     error
	// hubFindings are what check finds of the hub.
	hubFindings []finding
}

// add writes a file of text, without credentials.
func (b *bundle) add(name string, text []byte) {
	if b.err != nil {
		return
	}
	text = appendSafe(nil, []byte(redactText(string(text))), "\n\t")
	b.err = b.tar.WriteHeader(&tar.Header{Name: bundleFolder + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: b.began, Format: tar.FormatPAX})
	if b.err == nil {
		_, b.err = b.tar.Write(text)
	}
	b.files++
}

// addObject writes what stands in YAML, without credentials.
func (b *bundle) addObject(name string, object any) {
	text, err := yaml.Marshal(redact(object))
	if err != nil {
		b.miss(name, err)
		return
	}
	b.add(name, text)
}

// miss notes what could not be read.
func (b *bundle) miss(what string, err error) {
	b.missing = append(b.missing, oneLine(what+": "+err.Error()))
}

// read reads an object or a list. It returns nil if that is not possible.
func (b *bundle) read(ctx context.Context, from side, path string) map[string]any {
	var object map[string]any
	text, err := b.fetch(ctx, from, path)
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		b.miss(from.prefix+path, err)
		return nil
	}
	return object
}

// fetch returns what stands at a path with its query. What answers may be a cluster in an
// attacker's hands: an answer that is too large or slow is cut off.
func (b *bundle) fetch(ctx context.Context, from side, path string) ([]byte, error) {
	b.says(from.prefix + path)
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	request, err := request(from.client, from.prefix+path)
	if err != nil {
		return nil, err
	}
	body, err := request.SetHeader("Accept", "application/json, */*").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(io.LimitReader(body, b.limit))
}

// addRead reads and writes an object.
func (b *bundle) addRead(ctx context.Context, name string, from side, path string) {
	if object := b.read(ctx, from, path); object != nil {
		b.addObject(name, object)
	}
}

const (
	// bundleFolder is the one in which a bundle's files are.
	bundleFolder = "cluster-proxy-bundle"
	// readTimeout and maxAnswer bound one answer. Of 5,000 clusters the hub has about 20 MiB.
	readTimeout = 30 * time.Second
	maxAnswer   = 128 << 20
)

// finish writes what is about the bundle itself.
func (b *bundle) finish() {
	b.add("errors.txt", []byte(strings.Join(append(b.missing, ""), "\n")))
	b.add("README.txt", []byte(bundleReadme))
}

const bundleReadme = `What kubectl clusterproxy bundle has read. Begin with findings.txt.

findings.txt           what "check" says of the hub and of the named clusters, and whether its agents run
precheck.txt           what "check --pre" says: configurations, requests for certificates, rights
status.txt             which clusters can be reached, why others cannot and since when
hub/                   the addon's objects on the hub: its configuration, and what OCM knows of clusters
hub/namespace/         its namespace there: Deployments, pods, events, Services, NetworkPolicies
hub/logs/              logs of its pods; those of containers that ended are called .previous.log
clusters/NAME/         the same of a named cluster, read through the tunnel, or with --cluster-kubeconfig
errors.txt             what could not be read, and why

Secrets were not read. What looks like a credential is removed from everything else.
`

// lines returns what a function writes to the plugin's output.
func lines(write func(p *plugin)) []byte {
	var text bytes.Buffer
	write(&plugin{out: &text, err: &text})
	return text.Bytes()
}
