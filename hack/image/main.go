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
	"strconv"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/hack/oci"
)

func main() {
	name := flag.String("name", "quay.io/open-cluster-management/cluster-proxy:dev", "reference of the image")
	out := flag.String("out", "bin/cluster-proxy.tar", "file to write; the lists of contents go beside it")
	archs := flag.String("arch", "amd64,arm64", "architectures")
	flag.Parse()
	if err := run(*name, *out, strings.Split(*archs, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(name, out string, archs []string) error {
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
	for _, arch := range archs {
		file := filepath.Join(dir, arch)
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./cmd/cluster-proxy")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if output, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building for %s: %w\n%s", arch, err, output)
		}
		binary, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		image.Variants = append(image.Variants, oci.AddonVariant(arch, binary))
		info, err := buildinfo.Read(bytes.NewReader(binary))
		if err != nil {
			return fmt.Errorf("reading what the binary for %s was built from: %w", arch, err)
		}
		list, err := oci.SBOM("cluster-proxy-linux-"+arch, info, binary, image.Created)
		if err != nil {
			return err
		}
		if err := os.WriteFile(strings.TrimSuffix(out, ".tar")+"-"+arch+".spdx.json", list, 0o644); err != nil {
			return err
		}
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
	fmt.Printf("%s: %s for %s, %d MB\n", out, name, strings.Join(archs, " and "), size.Size()>>20)
	return file.Close()
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
