package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
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

// repositories are those below an OCI folder.
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
	return slices.Compact(found), err
}

// publish pushes a release, with the credentials that docker login or podman login have stored.
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
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
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
			err = remote.WriteIndex(tag, child, options...)
			if err != nil {
				return fmt.Errorf("pushing %s: %w", tag, err)
			}
		} else {
			child, err := index.Image(described.Digest)
			if err != nil {
				return err
			}
			if err := remote.Write(tag, child, options...); err != nil {
				return fmt.Errorf("pushing %s: %w", tag, err)
			}
		}
		fmt.Fprintf(out, "%s@%s\n", tag, described.Digest)
	}
	return nil
}
