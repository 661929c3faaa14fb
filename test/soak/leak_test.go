package soak

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// leakEnv is the file to which a process that leaks writes where its metrics are; leakWhat is
// "all" or "nothing".
const leakEnv, leakWhat = "SOAK_LEAK_ADDRESS", "SOAK_LEAK_WHAT"

func TestMain(m *testing.M) {
	if file := os.Getenv(leakEnv); file != "" {
		if err := leak(file, os.Getenv(leakWhat) == "all"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// leak serves metrics, and loses some of everything each time that it is asked for them.
func leak(file string, all bool) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", []byte(listener.Addr().String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	var lost [][]byte
	var files []*os.File
	var sockets []net.Listener
	show := promhttp.Handler()
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if all {
			go func() { select {} }()
			block := make([]byte, 256<<10)
			for i := 0; i < len(block); i += os.Getpagesize() {
				block[i] = 1 // or the kernel has no page of it
			}
			file, _ := os.Open(os.DevNull)
			socket, _ := net.Listen("tcp", "127.0.0.1:0")
			lost, files, sockets = append(lost, block), append(files, file), append(sockets, socket)
		}
		show.ServeHTTP(w, r)
	}))
}

// TestLeakingProcess samples a process that leaks as those of the addon are sampled: every
// measure must grow, and none of the same process without the leak.
func TestLeakingProcess(t *testing.T) {
	for what, want := range map[string]int{"all": len(measures), "nothing": 0} {
		t.Run(what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "address")
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), leakEnv+"="+file, leakWhat+"="+what)
			p := program.Start(t, "leak", cmd)
			var address []byte
			p.Await(t, "its address", func() (err error) {
				address, err = os.ReadFile(file)
				return err
			})
			began := time.Now()
			const count = 100
			var samples []sample
			for i := range count {
				took, err := usageOf(t.Context(), cmd.Process.Pid, string(address))
				if err != nil {
					t.Fatal(err)
				}
				samples = append(samples, sample{at: began.Add(time.Duration(i) * time.Second), kind: "leak", process: "leak/1", took: took})
			}
			trends, err := trendsOf(samples, began, began.Add(count*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if got := growing(trends); len(got) != want {
				t.Errorf("%d measures grow, want %d:\n%s", len(got), want, tableOf(trends))
			}
		})
	}
}
