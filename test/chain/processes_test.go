package chain

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/components"
)

func TestMain(m *testing.M) {
	components.Main(m, map[string]components.Program{
		"proxy-server": components.ProxyServer, "proxy-agent": components.ProxyAgent, "proxy-api": components.ProxyAPI,
	})
}

// process is one that runs until the test ends, or is killed.
type process struct {
	t       *testing.T
	name    string
	command *exec.Cmd
	ended   chan struct{}

	mu      sync.Mutex
	log     bytes.Buffer
	written chan struct{} // holds a token when log grew
}

func startProcess(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, command: components.Command(name, args...), ended: make(chan struct{}), written: make(chan struct{}, 1)}
	p.command.Stdout, p.command.Stderr = p, p
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.command.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			out := p.output()
			t.Logf("%s:\n%s", name, out[max(0, len(out)-20_000):])
		}
	})
	return p
}

// Write is part of io.Writer.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.written <- struct{}{}:
	default:
	}
	return p.log.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// kill is SIGKILL.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

// says waits for output that matches a pattern, and returns its submatches.
func (p *process) says(pattern string) []string {
	p.t.Helper()
	limit := time.After(testTimeout)
	for compiled := regexp.MustCompile(pattern); ; {
		if found := compiled.FindStringSubmatch(p.output()); found != nil {
			return found
		}
		select {
		case <-p.written:
		case <-p.ended:
			p.t.Fatalf("%s ended before it said %q", p.name, pattern)
		case <-limit:
			p.t.Fatalf("%s does not say %q", p.name, pattern)
		}
	}
}

// testTimeout is long, since a machine may be busy with other tests.
const testTimeout = 2 * time.Minute

func flag(name string, value any) string { return fmt.Sprintf("--%s=%v", name, value) }
