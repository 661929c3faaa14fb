package main

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// mirrored makes the mirror, verifies and starts it as the page says, and cuts it off.
func mirrored(t *testing.T, dist, key string) {
	machine := runtime.GOOS + "-" + runtime.GOARCH
	if err := (source{created: time.Unix(1000, 0)}).writeMirror(thisProgram(t), dist, machine, key, io.Discard); err != nil {
		t.Fatal(err)
	}
	site, host := t.TempDir(), startRegistry(t)
	file := "cluster-proxy-" + version + "-mirror-" + machine
	shell(t, filepath.Dir(dist), fmt.Sprintf("mv %[1]s %[1]s.sig %[2]s && cp dist/%[3]s %[2]s", file, site, publicKey))
	if err := (source{}).writeMirror([]byte("program"), dist, "windows-amd64", "", io.Discard); err != nil {
		t.Fatal(err)
	}
	if name := strings.ReplaceAll(file, machine, "windows-amd64.exe"); shell(t, filepath.Dir(dist), "ls *-windows-*") != name+"\n" {
		t.Errorf("the mirror for Windows is not called %s", name)
	}
	var said string
	for _, block := range blocks(t, "air-gapped.md", "mirror", strings.NewReplacer("<version>", version, "<mirror>", host, "linux-amd64", machine)) {
		said += shell(t, site, block)
	}
	if want := "oci://" + host + "/charts/cluster-proxy --version " + version; !strings.Contains(said, want) {
		t.Errorf("it does not say %q:\n%s", want, said)
	}
	verifySignature(t, host+"/cluster-proxy:v"+version, key)
	pulled(t, dist, host)
	if diff, err := try(t, site, "diff -r release "+dist); err != nil {
		t.Errorf("the mirror has something else: %s", diff)
	}
}
