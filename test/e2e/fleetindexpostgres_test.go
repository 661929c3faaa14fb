package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
	"open-cluster-management.io/cluster-proxy/test/testkit/scrape"
)

// postgres is a PostgreSQL server of this test, which takes connections with TLS alone.
type postgres struct {
	bin, dir string
	port     int
	// ca is the file of the CA that signed its certificate.
	ca string
	// as is the user that it runs as, which root is not.
	as *syscall.Credential
}

// adminPassword is that of the server's administrator, postgres.
const adminPassword = "of this test"

// startPostgres starts the server of Debian's package postgresql, as hack/with-postgres.sh finds it, for as long as the test runs.
func startPostgres(t *testing.T) *postgres {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		fmt.Fprintln(os.Stderr, "!!! NOT RUN: "+t.Name()+", the fleet index with PostgreSQL: there is no server; run: apt-get install postgresql")
		t.Skip("no PostgreSQL server; run: apt-get install postgresql")
	}
	dir, err := os.MkdirTemp("", "cluster-proxy-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &postgres{bin: filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return release(a) - release(b) })), dir: dir, ca: filepath.Join(dir, "tls-ca.crt")}
	if p.port, err = ports.Next(); err != nil {
		t.Fatal(err)
	}
	ca := pkitest.NewCA(t, "a database's CA")
	tls := pkitest.Issue(t, filepath.Join(dir, "tls"), ca, pki.Leaf{CommonName: "postgres", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}, ca)
	for name, text := range map[string]string{
		"password": adminPassword,
		"access":   "hostssl all all 127.0.0.1/32 scram-sha-256\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.giveAway(t)
	p.run(t, "initdb", "--pgdata="+filepath.Join(dir, "data"), "--username=postgres", "--pwfile="+filepath.Join(dir, "password"), "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8")
	p.serve(t, "-D", filepath.Join(dir, "data"), "-c", "listen_addresses=127.0.0.1", "-c", fmt.Sprint("port=", p.port), "-c", "unix_socket_directories=",
		"-c", "hba_file="+filepath.Join(dir, "access"), "-c", "ssl=on", "-c", "ssl_cert_file="+tls.Cert, "-c", "ssl_key_file="+tls.Key, "-c", "fsync=off")
	return p
}

// release is the number of a release of PostgreSQL, of the path of one of its programs.
func release(path string) int { return atoi(strings.Split(path, "/")[4]) }

// giveAway makes the files those of user postgres, if this one is root.
func (p *postgres) giveAway(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.Atoi(account.Uid)
	gid, err2 := strconv.Atoi(account.Gid)
	p.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	err = filepath.WalkDir(p.dir, func(path string, _ os.DirEntry, err error) error { return errors.Join(err, os.Chown(path, uid, gid)) })
	if err := errors.Join(err1, err2, err); err != nil {
		t.Fatal(err)
	}
}

func (p *postgres) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as}
	return cmd
}

func (p *postgres) run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := p.command(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// serve runs the server until the cleanups that were registered later are done: the index is removed before it.
func (p *postgres) serve(t *testing.T, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	log := filepath.Join(p.dir, "log")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	server := p.command(ctx, "postgres", args...)
	server.Stdout, server.Stderr = file, file
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGQUIT) } // at once
	server.WaitDelay = 10 * time.Second
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	t.Cleanup(func() {
		stop()
		<-ended
		_ = file.Close()
		if t.Failed() {
			t.Logf("the end of PostgreSQL's log:\n%s", program.Tail(log))
		}
	})
	suite.Eventually(t, "PostgreSQL", func() error {
		out, err := p.command(t.Context(), "pg_isready", "-h", "127.0.0.1", "-p", fmt.Sprint(p.port)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s%s", err, out, program.Tail(log))
		}
		return nil
	})
}

// makeAdmin makes psql of the commands that the test runs the server's administrator.
func (p *postgres) makeAdmin(t *testing.T) {
	for name, value := range map[string]string{
		"PGHOST": "127.0.0.1", "PGPORT": fmt.Sprint(p.port), "PGUSER": "postgres", "PGPASSWORD": adminPassword, "PGDATABASE": "postgres",
		"PGSSLMODE": "verify-full", "PGSSLROOTCERT": p.ca, "PATH": p.bin + ":" + os.Getenv("PATH"),
	} {
		t.Setenv(name, value)
	}
}

// TestFleetIndexPostgreSQLExample runs the example's commands with a PostgreSQL server of its own, whose certificate is
// verified. One of the two replicas is killed, and the other one follows all clusters. No row of the store is lost or doubled.
// It disturbs everything: agents and the proxy API are replaced.
func TestFleetIndexPostgreSQLExample(t *testing.T) {
	long.Test(t)
	installed.NeedLab(t, "installs the chart with other values")
	if onNodes {
		t.Skip("pods on nodes have a 127.0.0.1 of their own, where this server is not: make test-long")
	}
	f := newFleet(t)
	server := startPostgres(t)
	server.makeAdmin(t)
	t.Cleanup(func() {
		_ = installed.Hub.CoreV1().Secrets(installed.Namespace).Delete(context.Background(), "fleet-index-store", metav1.DeleteOptions{})
	})
	t.Cleanup(func() {
		removeIndex(t, func() error {
			return installed.Lab.InstallChart(context.Background(), "cluster-proxy", installed.Namespace, "../../charts/cluster-proxy", installed.ChartValues()...)
		})
	})
	chart, err := filepath.Abs("../../charts/cluster-proxy")
	if err != nil {
		t.Fatal(err)
	}
	runExample(t, "fleet-index-postgresql", f.clusters[0], 4,
		"postgres.databases.svc/", fmt.Sprintf("127.0.0.1:%d/", server.port), "postgres-ca.crt", server.ca, "<chart>", chart)
	for _, view := range []string{"all", "live"} {
		installed.AwaitView(t, view)
	}
	for _, cluster := range f.clusters {
		f.makeIndexed(t, cluster)
	}
	awaitFollowed(t, f.clusters, 2)
	awaitStored(t, "the rows of two replicas")
	followed, err := followedBy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	victim := slices.MaxFunc(followed, func(a, b indexReplica) int { return int(a.clusters - b.clusters) })
	t.Logf("%s is killed; replicas follow %v clusters", victim.pod, followed)
	index := installed.FleetIndex()
	index.Kill(t, victim.pod)
	began := time.Now()
	for _, cluster := range f.clusters { // nobody follows some of them now
		services := f.on[cluster].CoreV1().Services(f.ns)
		if _, err := services.Create(t.Context(), service("meanwhile"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := services.Delete(t.Context(), "indexed", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitFollowed(t, f.clusters, 1)
	t.Logf("all clusters are followed again %s after the kill", time.Since(began).Round(100*time.Millisecond))
	awaitStored(t, "the rows after one was killed")
	f.awaitIndexedServices(t, "the index to say what the clusters have")
	installed.AwaitOtherPods(t.Context(), t, index, []string{victim.pod})
	awaitFollowed(t, f.clusters, 2)
	awaitStored(t, "the rows when another one has come")
}

// indexReplica is a replica of the index, and how many clusters it follows whose rows are current.
type indexReplica struct {
	pod      string
	clusters float64
}

// followedBy are the replicas that answer.
func followedBy(ctx context.Context) (all []indexReplica, _ error) {
	index := installed.FleetIndex()
	names, err := index.Pods(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		pod, err := index.Client.CoreV1().Pods(index.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		address, err := installed.Lab.PodAddress("hub", pod.UID, 8000)
		if err != nil {
			continue // it has no process yet
		}
		current, err := scrape.Metric(ctx, address, "cluster_proxy_index_clusters", `state="current"`)
		if err != nil {
			continue // or that begins
		}
		all = append(all, indexReplica{name, current})
	}
	return all, nil
}

// awaitFollowed waits until so many replicas answer at least, and each cluster is followed by one of them.
func awaitFollowed(t *testing.T, clusters []string, replicas int) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("%d replicas that follow all clusters", replicas), func() error {
		followed, err := followedBy(t.Context())
		if err != nil {
			return err
		}
		sum := 0.0
		for _, replica := range followed {
			sum += replica.clusters
		}
		if len(followed) < replicas || int(sum) != len(clusters) {
			return fmt.Errorf("replicas follow %v clusters, want %d of %d or more", followed, len(clusters), replicas)
		}
		return nil
	})
}

// awaitStored waits until the store has the objects that the clusters have, of each kind that is indexed, and each once.
func awaitStored(t *testing.T, what string) {
	t.Helper()
	for _, kind := range indexedKinds(t) {
		suite.Eventually(t, what, func() error { return installed.IndexHolds(t.Context(), kind) })
	}
}
