package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"helm.sh/helm/v3/pkg/helmpath"
)

// check returns an error unless a folder has the files of its sums, and no other.
func check(dist string) error {
	list, err := os.ReadFile(filepath.Join(dist, sums))
	if err != nil {
		return err
	}
	want := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); {
		sum, file, _ := strings.Cut(lines.Text(), "  ")
		want[file] = sum
	}
	files, err := filesOf(dist)
	if err != nil {
		return err
	}
	for _, f := range files {
		if got := fmt.Sprintf("%x", sha256.Sum256(f.Content)); f.Path != sums && f.Path != sums+".sig" && got != want[f.Path] {
			return fmt.Errorf("%s in %s has the sum %s, and not %q of %s: make the release again", f.Path, dist, got, want[f.Path], sums)
		}
		delete(want, f.Path)
	}
	if len(want) > 0 {
		return fmt.Errorf("%d files of %s are missing in %s: make the release again", len(want), sums, dist)
	}
	return nil
}

// repositories are those below an OCI folder. The image comes before the chart, which needs it.
func repositories(dist string) (found []string, err error) {
	files, err := filepath.Glob(filepath.Join(dist, layouts, "*", "index.json"))
	if err != nil {
		return nil, err
	}
	charts, err := filepath.Glob(filepath.Join(dist, layouts, "*", "*", "index.json"))
	for _, file := range append(files, charts...) {
		repository, err := filepath.Rel(filepath.Join(dist, layouts), filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		found = append(found, filepath.ToSlash(repository))
	}
	slices.Sort(found)
	slices.Reverse(found)
	return slices.Compact(found), err
}

// publish pushes a release, with the credentials that docker login, podman login or helm registry login have stored.
// A tag that is there already must be the same.
func publish(ctx context.Context, dist, registry string, out io.Writer) error {
	if registry == "" {
		return errors.New("name the registry to push to, such as ghcr.io/example/ocm")
	}
	if err := check(dist); err != nil {
		return err
	}
	found, err := repositories(dist)
	if err != nil {
		return err
	}
	for _, repository := range found {
		if err := push(ctx, filepath.Join(dist, layouts, filepath.FromSlash(repository)), path.Join(registry, repository), out); err != nil {
			return err
		}
	}
	return nil
}

// credentials are those of docker or podman and, if they have none for a registry, those of Helm.
var credentials = authn.NewMultiKeychain(authn.DefaultKeychain, helmKeychain{})

// helmKeychain has the credentials that helm registry login stores. The zero value is ready to use.
type helmKeychain struct{}

// Resolve returns the credentials for a registry, or authn.Anonymous.
func (helmKeychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	file := cmp.Or(os.Getenv("HELM_REGISTRY_CONFIG"), helmpath.ConfigPath("registry", "config.json"))
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return authn.Anonymous, nil
	}
	if err != nil {
		return nil, err
	}
	stored, err := config.LoadFromReader(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("reading Helm's credentials in %s: %w", file, err)
	}
	found, err := stored.GetAuthConfig(target.RegistryStr())
	if err != nil || found.Username == "" && found.IdentityToken == "" {
		return authn.Anonymous, err
	}
	return authn.FromConfig(authn.AuthConfig{Username: found.Username, Password: found.Password, IdentityToken: found.IdentityToken}), nil
}

// push pushes an OCI layout.
func push(ctx context.Context, dir, repository string, out io.Writer) error {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(credentials)}
	for _, described := range list.Manifests {
		tag, err := name.NewTag(repository + ":" + described.Annotations[refName])
		if err != nil {
			return err
		}
		if there, err := remote.Head(tag, options...); err == nil && there.Digest != described.Digest {
			return fmt.Errorf("%s is there already, and is %s: a release is published once", tag, there.Digest)
		}
		if described.MediaType.IsIndex() {
			child, err := index.ImageIndex(described.Digest)
			if err != nil {
				return err
			}
			if err := remote.WriteIndex(tag, child, options...); err != nil {
				return pushError(tag, err)
			}
		} else {
			child, err := index.Image(described.Digest)
			if err != nil {
				return err
			}
			if err := remote.Write(tag, child, options...); err != nil {
				return pushError(tag, err)
			}
		}
		fmt.Fprintf(out, "%s@%s\n", tag, described.Digest)
	}
	return nil
}

// pushError is an error of pushing a tag. It says how to log in if the registry wants that.
func pushError(tag name.Tag, err error) error {
	var refused *transport.Error
	if errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden) {
		return fmt.Errorf("pushing %s: %w; log in as somebody who may push there: docker login %[3]s, podman login %[3]s or helm registry login %[3]s", tag, err, tag.RegistryStr())
	}
	return fmt.Errorf("pushing %s: %w", tag, err)
}
