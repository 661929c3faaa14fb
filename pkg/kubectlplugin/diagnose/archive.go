package diagnose

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"sigs.k8s.io/yaml"
)

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
	text = cli.AppendSafe(nil, []byte(redactText(string(text))), "\n\t")
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
	b.missing = append(b.missing, cli.OneLine(what+": "+err.Error()))
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

// fetch returns what stands at a path with its query. A cluster that answers may be in an
// attacker's hands: an answer that is too large or slow is cut off.
func (b *bundle) fetch(ctx context.Context, from side, path string) ([]byte, error) {
	b.says(from.prefix + path)
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	request, err := cli.Request(from.client, from.prefix+path)
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

const bundleReadme = `This folder has what kubectl clusterproxy bundle has read. Begin with findings.txt.

findings.txt           what "check" says of the hub and of the named clusters, and whether its agents run
precheck.txt           what "check --pre" says: owners, configurations, requests for certificates, rights
status.txt             which clusters can be reached, why others cannot and since when
hub/                   the addon's objects on the hub: its configuration, and what OCM knows of clusters
hub/namespace/         its namespace there: Deployments, pods, events, Services, NetworkPolicies
hub/logs/              logs of its pods; those of containers that ended are called .previous.log
clusters/NAME/         the same of a named cluster, read through the tunnel, or with --cluster-kubeconfig
errors.txt             what could not be read, and why

Secrets were not read. Everything else is without what looks like a credential.
`

// lines returns what a function writes to the plugin's output.
func lines(write func(p *cli.Factory)) []byte {
	var text bytes.Buffer
	write(&cli.Factory{Out: &text, Err: &text})
	return text.Bytes()
}
