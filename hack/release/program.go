package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// source is a checkout of which programs are built.
type source struct {
	dir     string
	commit  string
	created time.Time
}

// openSource reads commit and time of a checkout. SOURCE_DATE_EPOCH overrides the time, as everywhere.
func openSource(dir string) (source, error) {
	log := exec.Command("git", "log", "-1", "--format=%H %ct")
	log.Dir = dir
	out, err := log.Output()
	if err != nil {
		return source{}, fmt.Errorf("asking git for the commit: %w", err)
	}
	commit, text, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		text = epoch
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("reading the time of the commit, or SOURCE_DATE_EPOCH: %w", err)
	}
	return source{dir: dir, commit: commit, created: time.Unix(seconds, 0).UTC()}, nil
}

// clean returns an error if the checkout is not what its commit says. In the folders of which a release is made that
// holds for files too that git ignores: the chart has all files below its folder, and go build compiles them.
func (s source) clean() error {
	for _, args := range [][]string{{"status", "--porcelain"}, {"ls-files", "--others", "--", "charts", "cmd", "pkg"}} {
		git := exec.Command("git", args...)
		git.Dir = s.dir
		if out, err := git.Output(); err != nil || len(out) > 0 {
			return fmt.Errorf("the provenance of a release names a commit, and these files are in none: commit or remove them, %v\n%s", err, out)
		}
	}
	return nil
}

// program builds a command for a platform, stripped and static, with nothing of this machine in it.
func (s source) program(command, system, arch, set string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "cluster-proxy-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "program")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", strings.TrimSpace("-s -w -buildid= "+set), "-o", file, command)
	cmd.Dir = s.dir
	// A program needs the instructions and the cryptography that Go has by default, and not those of this machine.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch, "GOFLAGS=-buildvcs=false", "GOWORK=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOPPC64=power8", "GOFIPS140=off", "GOEXPERIMENT=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s for %s/%s: %w\n%s", command, system, arch, err, output)
	}
	return os.ReadFile(file)
}

// sbom lists what a Go program was built from, as SPDX 2.3 in JSON. It is read
// from the program itself, so it cannot differ from what is in it.
func sbom(name, version string, program []byte, created time.Time) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("reading what %s was built from: %w", name, err)
	}
	type object = map[string]any
	sum := fmt.Sprintf("%x", sha256.Sum256(program))
	packages := []object{{
		"SPDXID": "SPDXRef-binary", "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
		"checksums": []object{{"algorithm": "SHA256", "checksumValue": sum}},
	}, {
		"SPDXID": "SPDXRef-go", "name": "go", "versionInfo": info.GoVersion, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
	}}
	relations := []object{
		{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-binary"},
		{"spdxElementId": "SPDXRef-binary", "relationshipType": "CONTAINS", "relatedSpdxElement": "SPDXRef-go"},
	}
	for i, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		id := fmt.Sprintf("SPDXRef-module-%d", i)
		packages = append(packages, moduleOf(id, module))
		relations = append(relations, object{"spdxElementId": "SPDXRef-binary", "relationshipType": "CONTAINS", "relatedSpdxElement": id})
	}
	return json.MarshalIndent(object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
		"documentNamespace": "https://open-cluster-management.io/spdx/" + name + "/" + sum,
		"creationInfo":      object{"created": created.Format(time.RFC3339), "creators": []string{"Tool: cluster-proxy/hack/release"}},
		"packages":          packages, "relationships": relations,
	}, "", " ")
}

func moduleOf(id string, module *debug.Module) map[string]any {
	return map[string]any{
		"SPDXID": id, "name": module.Path, "versionInfo": module.Version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
		"externalRefs": []map[string]string{{
			"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:golang/" + module.Path + "@" + module.Version,
		}},
	}
}
