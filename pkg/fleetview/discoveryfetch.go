package fleetview

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

const (
	// maxDiscovery bounds one answer of a member. The largest known are the OpenAPI v2
	// documents of clusters with thousands of CRDs, of about 20 MiB.
	maxDiscovery = 32 << 20
	// legacyAtOnce is how many group versions of one member are asked for at once.
	legacyAtOnce = 16

	acceptDiscovery = jsonType + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		jsonType + ";g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," + jsonType
)

// part is one answer of a member.
type part struct {
	path string
	body []byte
}

// fetch gets a path of a member.
func (d *discovery) fetch(ctx context.Context, member Member, path, accept string) (part, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return part{}, fmt.Errorf("making a request for %q: %w", path, err)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", "gzip")
	response, err := member.RoundTrip(r)
	if err != nil {
		return part{}, err
	}
	defer response.Body.Close()
	select {
	case d.readers <- struct{}{}:
		defer func() { <-d.readers }()
	case <-ctx.Done():
		return part{}, context.Cause(ctx)
	}
	if err := unzip(response); err != nil {
		return part{}, fmt.Errorf("reading its answer to %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return part{}, fault.Read(member.Name(), response)
	}
	body, err := readBounded(response.Body, maxDiscovery)
	if err != nil {
		return part{}, fmt.Errorf("reading its answer to %s: %w", path, err)
	}
	return part{path: path, body: body}, nil
}

// unzip makes an answer's body plain. The caller closes the body that it had.
func unzip(response *http.Response) error {
	if response.Header.Get("Content-Encoding") != "gzip" {
		return nil
	}
	unzipped, err := gzip.NewReader(response.Body)
	if err != nil {
		return err
	}
	response.Body = unzipped
	return nil
}

func readBounded(body io.Reader, limit int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("it has more than %d MiB", limit>>20)
	}
	return content, nil
}

// fetchOne returns a fetch of one path.
func fetchOne(path string) func(context.Context, *discovery, Member) ([]part, error) {
	return func(ctx context.Context, d *discovery, member Member) ([]part, error) {
		p, err := d.fetch(ctx, member, path, jsonType)
		return []part{p}, err
	}
}

// fetchServed gets what a member serves and of which version it is.
func fetchServed(ctx context.Context, d *discovery, member Member) ([]part, error) {
	var version part
	var core []part
	var coreErr error
	var running sync.WaitGroup
	running.Go(func() {
		// A member without a version counts as older than all others.
		if p, err := d.fetch(ctx, member, "/version", jsonType); err == nil {
			version = p
		}
	})
	running.Go(func() { core, coreErr = d.fetchRoot(ctx, member, "/api", merge.ParseVersions) })
	parts, err := d.fetchRoot(ctx, member, "/apis", merge.ParseGroupList)
	running.Wait()
	if refused := new(fault.Fault); errors.As(coreErr, &refused) && refused.Code == http.StatusNotFound {
		core, coreErr = nil, nil // an aggregated apiserver alone has no core group
	}
	if coreErr != nil {
		return nil, coreErr
	}
	return slices.Concat([]part{version}, core, parts), err
}

// fetchRoot gets /api or /apis, and below it what the member's answer does not have.
func (d *discovery) fetchRoot(ctx context.Context, member Member, path string,
	legacy func([]byte) ([]merge.APIGroup, error)) ([]part, error) {
	root, err := d.fetch(ctx, member, path, acceptDiscovery)
	if err != nil || merge.IsAggregated(root.body) {
		return []part{root}, err
	}
	groups, err := legacy(root.body)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, group := range groups {
		for _, v := range group.Versions {
			paths = append(paths, strings.Join([]string{path, group.Metadata.Name, v.Version}, "/"))
		}
	}
	parts := make([]part, len(paths))
	slots := make(chan struct{}, legacyAtOnce)
	var running sync.WaitGroup
	for i, path := range paths {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			path = strings.Replace(path, "//", "/", 1) // the core group has no name
			// A group whose own server is down is listed without resources.
			if p, err := d.fetch(ctx, member, path, jsonType); err == nil {
				parts[i] = p
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return append([]part{root}, parts...), nil
}

// served is what a member serves.
type served struct {
	groups []merge.APIGroup
	// version is the gitVersion of body, the member's answer to /version.
	version string
	body    []byte
}

// parseServed makes a served of what fetchServed got.
func parseServed(parts []part) (any, error) {
	version, body := parseVersion(parts[0].body)
	groups, err := parseGroups(parts[1:])
	return served{groups: groups, version: version, body: body}, err
}

func parseGroups(parts []part) ([]merge.APIGroup, error) {
	var groups []merge.APIGroup
	for _, p := range parts {
		var more []merge.APIGroup
		var err error
		switch {
		case p.path == "":
			continue // not answered
		case merge.IsAggregated(p.body):
			more, err = merge.ParseGroups(p.body)
		case p.path == "/api":
			more, err = merge.ParseVersions(p.body)
		case p.path == "/apis":
			more, err = merge.ParseGroupList(p.body)
		default:
			gv, _ := merge.GroupVersionOf(p.path)
			var v merge.APIVersion
			if v, err = merge.ParseResourceList(p.body, gv); err == nil {
				setVersion(groups, gv, v)
			}
			err = nil // like one that was not answered
		}
		if err != nil {
			return nil, err
		}
		groups = append(groups, more...)
	}
	return groups, nil
}

func setVersion(groups []merge.APIGroup, gv schema.GroupVersion, v merge.APIVersion) {
	for i := range groups {
		for j := range groups[i].Versions {
			if groups[i].Metadata.Name == gv.Group && groups[i].Versions[j].Version == gv.Version {
				groups[i].Versions[j] = v
			}
		}
	}
}

// parseVersion returns the gitVersion of a member's answer to /version, and the answer
// if it has one.
func parseVersion(body []byte) (string, []byte) {
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if json.Unmarshal(body, &info) != nil || info.GitVersion == "" {
		return "", nil
	}
	return info.GitVersion, body
}

func parseIndex(parts []part) (any, error) { return merge.ParseOpenAPIIndex(parts[0].body) }

func parseSwagger(parts []part) (any, error) {
	if _, err := merge.ParseSwagger(parts[0].body); err != nil {
		return nil, err
	}
	return parts[0].body, nil
}

// digest tells contents apart.
type digest [sha256.Size]byte

func digestOf(name string, parts []part) digest {
	h := sha256.New()
	fmt.Fprintf(h, "%q", name)
	for _, p := range parts {
		fmt.Fprintf(h, "%q %d ", p.path, len(p.body))
		h.Write(p.body)
	}
	return digest(h.Sum(nil))
}
