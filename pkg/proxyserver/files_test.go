package proxyserver

import (
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// fewFiles is set in the process that runs TestOutOfFiles with few files.
const fewFiles = "PROXYSERVER_TEST_FEW_FILES"

// TestOutOfFiles takes all file descriptors of a server. Connections go on,
// the server accepts again once some are free, and it logs both once for each port.
func TestOutOfFiles(t *testing.T) {
	if os.Getenv(fewFiles) == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutOfFiles$", "-test.v")
		child.Env = append(os.Environ(), fewFiles+"=1")
		output, err := child.CombinedOutput()
		if err != nil {
			t.Fatalf("running the child: %v\n%s", err, output)
		}
		for _, line := range []string{"Accepting no connections until that is over", "Accepting connections again"} {
			logged := map[string]int{} // for the agents' port, and maybe for that of clients
			for _, match := range regexp.MustCompile(line+`".* address="(.*?)"`).FindAllStringSubmatch(string(output), -1) {
				logged[match[1]]++
			}
			if most := slices.Max(append(slices.Collect(maps.Values(logged)), 0)); most != 1 {
				t.Errorf("%q is logged %v times, want once for each port:\n%s", line, logged, output)
			}
		}
		return
	}
	h := startHub(t)
	h.carrierAgent(t, agentSpec{cluster: "cluster1"}, 2)
	dialer := h.dialer(t)
	open, err := dialer.DialContext(t.Context(), "tcp", "cluster1:443")
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, open, "x", "cluster1:x")

	release := takeFiles(t)
	// The kernel takes the connection, and the server cannot.
	waiting, err := net.Dial("tcp", h.Addrs().Agent.String())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	for range 100 {
		exchange(t, open, "x", "cluster1:x")
	}
	release()
	eventually(t, "an agent can connect again", func() bool {
		a, err := h.connectControl(t, agentSpec{cluster: "cluster2"})
		return err == nil && a != nil
	})
	if _, err := io.WriteString(open, "y"); err != nil {
		t.Errorf("the connection that was there: %v", err)
	}
	_ = open.Close()
}

// takeFiles leaves one file descriptor to the process, until release is called.
func takeFiles(t *testing.T) (release func()) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = 256
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	var taken []*os.File
	// A reload of certificates, for one, has a file open for a moment and gives it back.
	for quiet := time.Now(); time.Since(quiet) < 200*time.Millisecond; {
		file, err := os.Open(os.DevNull)
		if err != nil {
			runtime.Gosched()
			continue
		}
		taken, quiet = append(taken, file), time.Now()
	}
	_ = taken[0].Close()
	return func() {
		for _, file := range taken[1:] {
			_ = file.Close()
		}
	}
}
