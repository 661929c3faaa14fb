//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"golang.org/x/sync/errgroup"

	"open-cluster-management.io/cluster-proxy/test/lab/nodes"
)

// Missing says in one line what this machine lacks for a lab with nodes, and is
// empty when it lacks nothing.
func Missing() string { return nodes.Missing() }

// startNodes is Start for a lab with nodes.
func startNodes(ctx context.Context, options Options, release release) (_ *Lab, err error) {
	if missing := Missing(); missing != "" {
		return nil, fmt.Errorf("starting a lab with nodes: %s", missing)
	}
	if len(options.Older) > 0 {
		return nil, fmt.Errorf("starting a lab with nodes: its clusters have one version of Kubernetes, and %q cannot have another", options.Older)
	}
	assets, err := buildAssets(ctx, options.OCM, nil, options.Out)
	if err != nil {
		return nil, err
	}
	extra, err := buildNodeAssets(ctx, options.Out)
	if err != nil {
		return nil, err
	}
	l := &Lab{dir: options.Dir, release: release, assets: assets, extra: extra, group: newGroup(), Managed: map[string]*Cluster{}, AgentPort: 8091}
	names := append([]string{hubName}, options.Clusters...)
	if l.nodes, err = nodes.New(options.Dir, l.LogDir(), extra.path("labnode"), names); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.group.stop()
			err = errors.Join(err, l.nodes.Stop())
		}
	}()
	began := time.Now()
	say := func(text string) {
		fmt.Fprintf(options.Out, "lab: %s [%s]\n", text, time.Since(began).Round(100*time.Millisecond))
	}
	say("starting machines")
	limited, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := l.startMachines(names); err != nil {
		return nil, err
	}
	say("starting clusters")
	images, err := l.writeImages(options.Binary)
	if err != nil {
		return nil, err
	}
	starting, startCtx := errgroup.WithContext(limited)
	for _, c := range l.clusters() {
		starting.Go(func() error {
			if err := l.startNodeCluster(startCtx, c, images); err != nil {
				return fmt.Errorf("starting cluster %s: %w", c.Name, err)
			}
			say("cluster " + c.Name + " is ready")
			return nil
		})
	}
	if err := starting.Wait(); err != nil {
		return nil, err
	}
	if err := l.register(limited, options, say); err != nil {
		return nil, err
	}
	if err := l.ProveClosed(limited); err != nil {
		return nil, err
	}
	say("nobody can dial the managed clusters: proven")
	return l, nil
}

func (l *Lab) startMachines(names []string) error {
	if err := os.MkdirAll(l.LogDir(), 0o755); err != nil {
		return err
	}
	if err := l.nodes.StartNetwork(); err != nil {
		return err
	}
	for _, m := range l.nodes.Machines {
		if err := os.MkdirAll(m.Dir, 0o711); err != nil {
			return err
		}
		if err := l.nodes.StartMachine(m); err != nil {
			return err
		}
		c := &Cluster{Name: m.Name, dir: m.Dir, logs: l.LogDir(), apiPort: m.APIPort, machine: m}
		if err := c.prepare(); err != nil {
			return err
		}
		if c.isHub() {
			l.Hub = c
		} else {
			l.Managed[c.Name] = c
		}
	}
	if len(l.Managed) != len(names)-1 {
		return fmt.Errorf("a name of %q is used twice, or is the hub's", names)
	}
	return nil
}

// ProveClosed tries to open connections to every managed cluster from
// everywhere else in the lab, and fails if one opens. That the same address
// opens from the cluster's own machine shows that the attempt means something.
func (l *Lab) ProveClosed(ctx context.Context) error {
	trying, ctx := errgroup.WithContext(ctx)
	for _, target := range l.Managed {
		address := net.JoinHostPort(target.machine.Address, "6443")
		trying.Go(func() error {
			conn, err := l.nodes.Dial(ctx, target.Name, address)
			if err != nil {
				return fmt.Errorf("probing that %s is closed: its own machine cannot dial it: %w", target.Name, err)
			}
			return conn.Close()
		})
		for _, from := range append(l.Names(), "") {
			if from == target.Name {
				continue
			}
			for _, port := range []string{"6443", "10250", "22", "30000"} {
				trying.Go(func() error { return l.proveClosed(ctx, from, net.JoinHostPort(target.machine.Address, port)) })
			}
		}
	}
	return trying.Wait()
}

func (l *Lab) proveClosed(ctx context.Context, from, address string) error {
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := l.nodes.Dial(limited, from, address)
	if err == nil {
		conn.Close()
		return fmt.Errorf("a managed cluster is not closed: %q dialed %s", from, address)
	}
	return ctx.Err()
}

// dialHub opens a connection to a port of the hub's loopback address.
func (l *Lab) dialHub(ctx context.Context, port int) error {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if l.nodes != nil {
		return l.dials(ctx, hubName, address)
	}
	return dialHere(ctx, address)
}

// Nodes are the machines of a lab with nodes, for those who cut cables; nil in
// a lab without.
func (l *Lab) Nodes() *nodes.Lab { return l.nodes }

// Routes reports whether the kube-proxy of a cluster's node sends connections to an IP.
func (l *Lab) Routes(ctx context.Context, cluster, ip string) (bool, error) {
	rules, err := l.nodes.Output(ctx, cluster, "nft", "list", "table", "ip", "kube-proxy")
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(ip) + `\b`).Match(rules), err
}

// StartHubAPI starts the hub's kube-apiserver after somebody stopped it on its
// machine, and returns when it is ready.
func (l *Lab) StartHubAPI() error {
	if err := l.Hub.startNodePrograms(l.assets, "kube-apiserver"); err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(l.Hub.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return poll(ctx, func(ctx context.Context) error { return getOK(ctx, client, l.Hub.url()+"/readyz") })
}

// forwards are local listeners that lead to Services inside.
type forwards struct {
	mu        sync.Mutex
	addresses map[string]string
}

// forward gives a port of a Service a local address.
func (l *Lab) forward(cluster, namespace, service string, port int) (string, error) {
	c := l.cluster(cluster)
	if c == nil {
		return "", fmt.Errorf("no cluster %q in the lab", cluster)
	}
	cs, err := c.clientset()
	if err != nil {
		return "", err
	}
	svc, err := cs.CoreV1().Services(namespace).Get(context.Background(), service, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	target := net.JoinHostPort(svc.Spec.ClusterIP, fmt.Sprint(port))
	l.forwards.mu.Lock()
	defer l.forwards.mu.Unlock()
	if address, ok := l.forwards.addresses[cluster+target]; ok {
		return address, nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	if l.forwards.addresses == nil {
		l.forwards.addresses = map[string]string{}
	}
	l.forwards.addresses[cluster+target] = listener.Addr().String()
	go l.serveForward(listener, cluster, target)
	return listener.Addr().String(), nil
}

func (l *Lab) serveForward(listener net.Listener, cluster, target string) {
	log := program{name: "forward", log: filepath.Join(l.cluster(cluster).logs, cluster+"-forward.log")}
	if l.group != nil {
		context.AfterFunc(l.group.ctx, func() { listener.Close() })
	}
	for {
		outer, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer outer.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			inner, err := l.nodes.Dial(ctx, cluster, target)
			if err != nil {
				log.note(fmt.Sprintf("connecting to %s: %v", target, err))
				return // the client sees a reset
			}
			defer inner.Close()
			nodes.Splice(outer.(*net.TCPConn), inner.(*net.TCPConn))
		}()
	}
}

// openNodes finds the machines of a lab that another process started.
func (l *Lab) openNodes() (err error) {
	if !nodes.Is(l.dir) {
		return nil
	}
	if l.nodes, err = nodes.Open(l.dir); err != nil {
		return err
	}
	for _, c := range l.clusters() {
		if c.machine, err = l.nodes.Machine(c.Name); err != nil {
			return err
		}
	}
	return nil
}

// stopNodes removes what a lab with nodes of another process left in dir besides
// files.
func stopNodes(dir string) error {
	if !nodes.Is(dir) {
		return nil
	}
	l, err := nodes.Open(dir)
	if err != nil {
		return err
	}
	return l.Stop()
}

func (l *Lab) link(cluster string, paused bool) error {
	state := nodes.Plugged
	if paused {
		state = nodes.Unplugged
	}
	return l.nodes.Link(cluster, state)
}

// image files by the name of what is in them.
type images map[string]string

func (l *Lab) imageDir() string { return filepath.Join(l.dir, "images") }
