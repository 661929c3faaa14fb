package lab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Release is a release of OCM that a lab can run; the empty one is what ReleaseVariable
// says, or else the newest.
type Release string

// ReleaseVariable names the environment variable with the release of OCM to run
// where none is asked for.
const ReleaseVariable = "LAB_OCM"

// Releases are those that a lab can run: what people run, and the oldest one that
// the addon is tested with.
const (
	OCMCurrent Release = "1.2.1"
	OCMOldest  Release = "0.16.0"
)

// Names in a release's folder.
const (
	ocmProgram  = "ocm"
	hubCRDs     = "crds-hub"
	managedCRDs = "crds-managed"
	grpcServer  = "grpc-server"
)

// release says what a release of OCM is made of.
type release struct {
	version string
	module  module // its files go to the folders that they are named by
	// converts is set if the addon API has two versions, which a webhook converts.
	converts bool
	// grpc is set if clusters can join by gRPC.
	grpc bool
}

const apiModule = "open-cluster-management.io/api"

// commonCRDs are the definitions on a hub that all releases have in the same place.
var commonCRDs = []string{
	"cluster/v1/*managedclusters.crd.yaml", "cluster/v1beta2/*managedclustersets.crd.yaml", "cluster/v1beta2/*managedclustersetbindings.crd.yaml",
	"cluster/v1beta1/*placements.crd.yaml", "cluster/v1beta1/*placementdecisions.crd.yaml", "cluster/v1alpha1/*addonplacementscores.crd.yaml",
	"work/v1/*manifestworks.crd.yaml",
}

var agentCRDs = moduleFiles{apiModule, []string{"work/v1/*appliedmanifestworks.crd.yaml", "cluster/v1alpha1/*clusterclaims.crd.yaml"}}

var releases = map[Release]release{
	OCMCurrent: {version: string(OCMCurrent), converts: true, grpc: true, module: module{
		name: ocmProgram, pkg: ".", with: []string{"about-api"},
		files: map[string]moduleFiles{
			hubCRDs:     {apiModule, append([]string{"addon/v1beta1/*.crd.yaml", "addon/v1alpha1/*addontemplates.crd.yaml"}, commonCRDs...)},
			managedCRDs: agentCRDs,
			grpcServer: {"open-cluster-management.io/ocm", []string{
				"manifests/cluster-manager/hub/grpc-server/clusterrole.yaml", "manifests/cluster-manager/hub/grpc-server/clusterrolebinding.yaml",
				"manifests/cluster-manager/hub/grpc-server/serviceaccount.yaml",
			}},
		},
	}},
	OCMOldest: {version: string(OCMOldest), module: module{
		name: ocmProgram, pkg: ".", args: []string{"-modfile=go-0.16.0.mod", "-tags=ocm016"},
		files: map[string]moduleFiles{
			hubCRDs:     {apiModule, append([]string{"addon/v1alpha1/*.crd.yaml"}, commonCRDs...)},
			managedCRDs: agentCRDs,
		},
	}},
}

// or returns the release, or what stands for none.
func (r Release) or() Release {
	if r == "" {
		r = Release(os.Getenv(ReleaseVariable))
	}
	if r == "" {
		r = OCMCurrent
	}
	return r
}

func (r Release) find() (release, error) {
	found, ok := releases[r.or()]
	if !ok {
		return release{}, fmt.Errorf("OCM %q is not a release that the lab has; choose one of %q", r.or(), slices.Sorted(maps.Keys(releases)))
	}
	return found, nil
}

// build builds OCM's programs from their nested module and puts the release's files
// beside them. It returns their folder.
func (r release) build(ctx context.Context, out io.Writer) (dir string, err error) {
	if _, err := buildModules(ctx, r.kind(), []module{r.module}, neverReady, "with cold caches it takes eight minutes", out); err != nil {
		return "", err
	}
	return r.writeFiles(ctx)
}

// kind is that of the folder of its programs and files.
func (r release) kind() string { return "ocm-" + r.version }

// writeFiles puts the release's files into its folder, which it returns.
func (r release) writeFiles(ctx context.Context) (dir string, err error) {
	if dir, err = folderOf(r.kind(), []module{r.module}); err != nil {
		return "", err
	}
	source, err := sourceDir()
	if err != nil {
		return "", err
	}
	var modfile []string // the only one of its arguments that other commands take
	for _, arg := range r.module.args {
		if strings.HasPrefix(arg, "-modfile=") {
			modfile = append(modfile, arg)
		}
	}
	for folder, files := range r.module.files {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return "", err
		}
		from, err := moduleDir(ctx, r.module.source(filepath.Join(source, "binaries")), files.module, modfile...)
		if err != nil {
			return "", err
		}
		if err := copyMatches(from, filepath.Join(dir, folder), files.patterns); err != nil {
			return "", fmt.Errorf("copying from module %s: %w", files.module, err)
		}
	}
	return dir, nil
}

func copyMatches(from, to string, patterns []string) error {
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("finding %s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if err := writeIfMissing(filepath.Join(to, filepath.Base(file)), file); err != nil {
				return err
			}
		}
	}
	return nil
}
