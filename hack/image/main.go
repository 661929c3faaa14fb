// Command image packs the addon's binary into one container image for several
// architectures: bin/cluster-proxy.tar, an OCI archive, with a list of what is
// in it (SPDX) beside it for each. There is nothing in the image but the binary:
// no shell, and a user that is not root.
package main

import (
	"bytes"
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/hack/oci"
)

func main() {
	name := flag.String("name", "quay.io/open-cluster-management/cluster-proxy:dev", "reference of the image")
	out := flag.String("out", "bin/cluster-proxy.tar", "file to write; the lists of contents go beside it")
	archs := flag.String("arch", "amd64,arm64,ppc64le,s390x", "architectures")
	start := flag.Bool("start", false, "start the binary of each architecture too, those of others than this machine's by qemu-user-static")
	flag.Parse()
	if err := run(*name, *out, strings.Split(*archs, ","), *start); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(name, out string, archs []string, start bool) error {
	dir, err := os.MkdirTemp("", "cluster-proxy-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	image := oci.Addon(name)
	if image.Created, err = created(); err != nil {
		return err
	}
	var help string
	for _, arch := range archs {
		file := filepath.Join(dir, arch)
		variant, err := build(arch, file, strings.TrimSuffix(out, ".tar"), image.Created)
		if err != nil {
			return err
		}
		image.Variants = append(image.Variants, variant)
		if !start {
			continue
		}
		said, err := helpOf(arch, file)
		if err != nil {
			return err
		}
		if help != "" && help != said {
			return fmt.Errorf("the binary for %s has another help than that for %s:\n%s", arch, archs[0], said)
		}
		help = said
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := image.Write(file); err != nil {
		return err
	}
	size, err := file.Stat()
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s for %s, %d MB\n", out, name, strings.Join(archs, ", "), size.Size()>>20)
	return file.Close()
}

// build builds the binary for an architecture, and writes the list of what is in it
// beside the image.
func build(arch, file, beside string, created time.Time) (oci.Variant, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./cmd/cluster-proxy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		return oci.Variant{}, fmt.Errorf("building for %s: %w\n%s", arch, err, output)
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		return oci.Variant{}, err
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return oci.Variant{}, fmt.Errorf("reading what the binary for %s was built from: %w", arch, err)
	}
	list, err := oci.SBOM("cluster-proxy-linux-"+arch, info, binary, created)
	if err != nil {
		return oci.Variant{}, err
	}
	return oci.AddonVariant(arch, binary), os.WriteFile(beside+"-"+arch+".spdx.json", list, 0o644)
}

// machines are the architectures as QEMU names them.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x"}

// helpOf starts a binary and returns the help of its processes, which is the same for
// every architecture.
func helpOf(arch, file string) (string, error) {
	command := []string{file}
	if arch != runtime.GOARCH {
		emulator := "qemu-" + machines[arch] + "-static"
		if _, err := exec.LookPath(emulator); err != nil {
			return "", fmt.Errorf("starting the binary for %s: %w; run: apt-get install qemu-user-static", arch, err)
		}
		command = []string{emulator, file}
	}
	var help strings.Builder
	for _, process := range []string{"addon-manager", "proxy-server", "proxy-api", "proxy-agent"} {
		args := append(slices.Clone(command[1:]), process, "--help")
		output, err := exec.Command(command[0], args...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("starting the %s for %s: %w\n%s", process, arch, err, output)
		}
		if !strings.Contains(string(output), "cluster-proxy "+process+" [flags]") {
			return "", fmt.Errorf("the %s for %s has no help:\n%s", process, arch, output)
		}
		help.Write(output)
	}
	fmt.Printf("%s: started, %d lines of help\n", arch, strings.Count(help.String(), "\n"))
	return help.String(), nil
}

// created is the time of the commit, so that a later build has the same
// image. SOURCE_DATE_EPOCH overrides it, as everywhere.
func created() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("asking git for the time of the commit: %w; or set SOURCE_DATE_EPOCH", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading SOURCE_DATE_EPOCH %q: %w", text, err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
