package lab

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// The key of the programs' folder changes with what they are built from.
func TestAssetsKey(t *testing.T) {
	dir := t.TempDir()
	modules := append(slices.Clone(modules), module{name: "ocm", with: []string{"about"}})
	for _, folder := range []string{"kube", "kwok", "helm", "ocm", "about/deep"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]string{}
	for _, change := range []string{"nothing there", "kube/go.mod", "kube/main.go", "helm/go.sum", "about/deep/x.go"} {
		if change != "nothing there" {
			if err := os.WriteFile(filepath.Join(dir, change), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		key, err := assetsKey(dir, modules)
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[key]; ok {
			t.Errorf("the key is the same after %s as after %s", change, before)
		}
		seen[key] = change
		if again, _ := assetsKey(dir, modules); again != key {
			t.Error("the key changes though nothing did")
		}
	}
}

// A number that a dead lab had may be another process's now.
func TestDownSparesOtherProcesses(t *testing.T) {
	bystander := exec.Command("sleep", "60")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- bystander.Wait() }()
	defer func() {
		_ = bystander.Process.Kill()
		<-ended
	}()
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.MkdirAll(filepath.Join(dir, hubName), 0o755); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(state{PID: bystander.Process.Pid, Command: "lab serve --dir=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stateFile(dir), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Down(dir); err != nil {
		t.Fatal(err)
	}
	if commandLine(bystander.Process.Pid) != "sleep 60" {
		t.Error("stopping a lab that is gone stopped another process")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder of the dead lab is still there: %v", err)
	}
}
