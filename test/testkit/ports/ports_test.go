package ports

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// holderEnv makes this program a process that holds a block of ports until its
// input ends.
const holderEnv = "CLUSTER_PROXY_PORT_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) == "" {
		os.Exit(m.Run())
	}
	port, err := Next()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(port)
	bufio.NewScanner(os.Stdin).Scan()
}

func TestPortsAreTakenOnce(t *testing.T) {
	seen := map[int]bool{}
	for range 3 * blockSize {
		port := Take(t)
		if seen[port] || port >= kernelLowest() || port < lowest {
			t.Fatalf("port %d was returned before, or is the kernel's, whose ports begin at %d", port, kernelLowest())
		}
		seen[port] = true
	}
}

// TestProcessesShareNothing starts processes that each take a port and listen
// on none: their blocks must differ from each other.
func TestProcessesShareNothing(t *testing.T) {
	blocks := map[int]bool{Take(t) / blockSize: true}
	for range 5 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), holderEnv+"=1")
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
		lines := bufio.NewScanner(out)
		lines.Scan()
		port, err := strconv.Atoi(lines.Text())
		if err != nil || blocks[port/blockSize] {
			t.Errorf("port %d, %v; blocks taken before: %v", port, err, blocks)
		}
		blocks[port/blockSize] = true
	}
}

// TestForeignPortsAreLeftOut listens on the next port as a program that does
// not use blocks would.
func TestForeignPortsAreLeftOut(t *testing.T) {
	var p pool
	t.Cleanup(func() {
		for _, guard := range p.guards {
			_ = guard.Close()
		}
	})
	first, err := p.next()
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.free[0])))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	second, err := p.next()
	if err != nil || second == other.Addr().(*net.TCPAddr).Port || second == first {
		t.Errorf("port %d, %v; want one that differs from %d and from %s, where another program listens", second, err, first, other.Addr())
	}
}
