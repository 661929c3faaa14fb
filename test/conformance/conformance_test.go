//go:build conformance

package conformance

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	module       = "sigs.k8s.io/apiserver-network-proxy"
	clientModule = module + "/konnectivity-client"
)

func TestKonnectivitySuite(t *testing.T) {
	dir := t.TempDir()
	suite := filepath.Join(dir, "suite")
	copyModule(t, suite)
	binary := filepath.Join(dir, "cluster-proxy")
	run(t, "../..", "go", "build", "-o", binary, "./cmd/cluster-proxy")
	server := script(t, dir, "proxy-server", binary)
	agent := script(t, dir, "proxy-agent", binary)
	tests := filepath.Join(dir, "suite.test")
	run(t, suite, "go", "test", "-c", "-o", tests, "./tests")

	for name, args := range map[string][]string{
		"our server, our agent":            {"-server-path=" + server, "-agent-path=" + agent},
		"our server, konnectivity's agent": {"-server-path=" + server},
		"konnectivity's server, our agent": {"-agent-path=" + agent},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(tests, append([]string{"-test.v", "-test.timeout=20m"}, args...)...)
			cmd.Dir = filepath.Join(suite, "tests")
			out, err := cmd.CombinedOutput()
			passed, failed := verdicts(string(out))
			for _, name := range failed {
				t.Errorf("%s fails", name)
			}
			if err != nil || len(passed) == 0 {
				file := filepath.Join(os.TempDir(), strings.NewReplacer(" ", "-", ",", "", "'", "").Replace("conformance "+name)+".log")
				_ = os.WriteFile(file, out, 0o600)
				t.Errorf("%d passed, %d failed, %v; the output is in %s", len(passed), len(failed), err, file)
			}
			t.Logf("%d passed, %d failed", len(passed), len(failed))
		})
	}
}

// copyModule copies the module that go.mod names and makes it build on its own.
func copyModule(t *testing.T, to string) {
	t.Helper()
	from := strings.TrimSpace(run(t, "../..", "go", "list", "-m", "-f", "{{.Dir}}", module))
	client := strings.TrimSpace(run(t, "../..", "go", "list", "-m", "-f", "{{.Version}}", clientModule))
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	// The module cache is read-only, and so is a copy of it.
	if err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"external_server", "gauge"} {
		content, err := os.ReadFile(filepath.Join("testdata", name+".go.txt"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, "tests", "zz_"+name+"_test.go"), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, to, "go", "mod", "edit", "-dropreplace="+clientModule, "-require="+clientModule+"@"+client)
	run(t, to, "go", "mod", "tidy")
}

// script makes a subcommand look like a binary of its own, as the suite wants.
func script(t *testing.T, dir, subcommand, binary string) string {
	t.Helper()
	file := filepath.Join(dir, subcommand)
	if err := os.WriteFile(file, fmt.Appendf(nil, "#!/bin/sh\nexec %q %s \"$@\"\n", binary, subcommand), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

// verdicts are the names of the suite's tests by how they ended.
func verdicts(out string) (passed, failed []string) {
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "--- PASS: "); ok {
			passed = append(passed, strings.Fields(name)[0])
		}
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			failed = append(failed, strings.Fields(name)[0])
		}
	}
	return passed, failed
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running %s %v: %v", name, args, err)
	}
	return string(out)
}
