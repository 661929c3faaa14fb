package discovery

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/catalog"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

const (
	// MaxServed bounds what a member says of its resources, in all answers together. With 5,000
	// CRDs it is 5 MiB.
	MaxServed = 16 << 20
	// maxVersion bounds its answer to /version, of which kube-apiservers' have 400 bytes.
	maxVersion = 8 << 10
	// MaxIndex bounds its index of OpenAPI v3 documents: 200 bytes for each group version.
	MaxIndex = 4 << 20
	// MaxDocument bounds an OpenAPI document. The largest known are those of v2 of clusters
	// with thousands of CRDs, of about 20 MiB.
	MaxDocument = 32 << 20
	// legacyAtOnce is how many group versions of one member are asked for at once.
	legacyAtOnce = 16

	acceptDiscovery = fleet.JSONType + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		fleet.JSONType + ";g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," + fleet.JSONType
)

// part is one answer of a member.
type part struct {
	path string
	body []byte
	// kind and etag are those of the answer's header.
	kind, etag string
}

// fetch gets a path of a member.
func (d *Discovery) fetch(ctx context.Context, member fleet.Member, path, accept string, allowed *fleet.Allowance) (part, error) {
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
	done, err := turn(ctx, d.readers)
	if err != nil {
		return part{}, err
	}
	defer done()
	if err := unzip(response); err != nil {
		return part{}, fmt.Errorf("reading its answer to %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return part{}, fault.Read(member.Name(), response)
	}
	body, err := allowed.Read(response.Body)
	if err != nil {
		return part{}, fmt.Errorf("reading its answer to %s: %w", path, err)
	}
	return part{path: path, body: body, kind: response.Header.Get("Content-Type"), etag: response.Header.Get("ETag")}, nil
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

// fetchOne returns a fetch of one path.
func fetchOne(path string) func(context.Context, *Discovery, fleet.Member, *fleet.Allowance) ([]part, error) {
	return func(ctx context.Context, d *Discovery, member fleet.Member, allowed *fleet.Allowance) ([]part, error) {
		p, err := d.fetch(ctx, member, path, fleet.JSONType, allowed)
		return []part{p}, err
	}
}

// fetchServed gets what a member serves and of which version it is.
func fetchServed(ctx context.Context, d *Discovery, member fleet.Member, allowed *fleet.Allowance) ([]part, error) {
	var version part
	var core []part
	var coreErr error
	var running sync.WaitGroup
	running.Go(func() {
		// A member without a version has none that counts.
		if p, err := d.fetch(ctx, member, "/version", fleet.JSONType, &fleet.Allowance{Limit: maxVersion, Holding: allowed.Holding}); err == nil {
			version = p
		}
	})
	running.Go(func() { core, coreErr = d.fetchRoot(ctx, member, "/api", catalog.ParseVersions, allowed) })
	parts, err := d.fetchRoot(ctx, member, "/apis", catalog.ParseGroupList, allowed)
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
func (d *Discovery) fetchRoot(ctx context.Context, member fleet.Member, path string,
	legacy func([]byte, *catalog.Budget) ([]catalog.APIGroup, error), allowed *fleet.Allowance) ([]part, error) {
	root, err := d.fetch(ctx, member, path, acceptDiscovery, allowed)
	if err != nil {
		return nil, err
	}
	paths, err := d.legacyPaths(ctx, root, legacy)
	if err != nil {
		return nil, err
	}
	parts := make([]part, len(paths))
	slots := make(chan struct{}, legacyAtOnce)
	var running sync.WaitGroup
	for i, path := range paths {
		done, err := turn(ctx, slots)
		if err != nil {
			break
		}
		running.Go(func() {
			defer done()
			// A group whose own server is down is listed without resources.
			if p, err := d.fetch(ctx, member, path, fleet.JSONType, allowed); err == nil {
				parts[i] = p
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := allowed.Exceeded(); err != nil {
		return nil, fmt.Errorf("reading its answers below %s: %w", path, err)
	}
	return append([]part{root}, parts...), nil
}

// legacyPaths returns the paths below /api or /apis that a member without aggregated
// discovery is asked for; none if it has that.
func (d *Discovery) legacyPaths(ctx context.Context, root part, legacy func([]byte, *catalog.Budget) ([]catalog.APIGroup, error)) ([]string, error) {
	done, err := turn(ctx, d.turns)
	if err != nil {
		return nil, err
	}
	defer done()
	if catalog.IsAggregated(root.body) {
		return nil, nil
	}
	groups, err := legacy(root.body, &catalog.Budget{Context: ctx})
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, group := range groups {
		for _, v := range group.Versions {
			path := strings.Join([]string{root.path, group.Metadata.Name, v.Version}, "/")
			paths = append(paths, strings.Replace(path, "//", "/", 1)) // the core group has no name
		}
	}
	return paths, nil
}

// served is what a member serves.
type served struct {
	groups []catalog.APIGroup
	// of tells groups apart.
	of digest
	// version is the gitVersion of body, the member's answer to /version.
	version string
	body    []byte
}

// parseServed makes a served of what fetchServed got.
func parseServed(parts []part, budget *catalog.Budget) (any, error) {
	version, body := parseVersion(parts[0].body)
	groups, err := parseGroups(parts[1:], budget)
	budget.Held += int64(len(body))
	return served{groups: groups, of: digestOf("groups", parts[1:]), version: version, body: body}, err
}

func parseGroups(parts []part, budget *catalog.Budget) ([]catalog.APIGroup, error) {
	var groups []catalog.APIGroup
	for _, p := range parts {
		var more []catalog.APIGroup
		var err error
		switch {
		case p.path == "":
			continue // not answered
		case catalog.IsAggregated(p.body):
			more, err = catalog.ParseGroups(p.body, budget)
		case p.path == "/api":
			more, err = catalog.ParseVersions(p.body, budget)
		case p.path == "/apis":
			more, err = catalog.ParseGroupList(p.body, budget)
		default:
			gv, _ := catalog.GroupVersionOf(p.path)
			var v catalog.APIVersion
			if v, err = catalog.ParseResourceList(p.body, gv, budget); err == nil {
				setVersion(groups, gv, v)
			}
			if budget.Context.Err() == nil && !errors.Is(err, catalog.ErrLimit) {
				err = nil // like one that was not answered
			}
		}
		if err != nil {
			return nil, err
		}
		groups = append(groups, more...)
	}
	return groups, nil
}

func setVersion(groups []catalog.APIGroup, gv schema.GroupVersion, v catalog.APIVersion) {
	for i := range groups {
		for j := range groups[i].Versions {
			if groups[i].Metadata.Name == gv.Group && groups[i].Versions[j].Version == gv.Version {
				groups[i].Versions[j] = v
			}
		}
	}
}

// parseVersion returns the gitVersion of a member's answer to /version, and the answer. An
// answer that contradicts itself is none: clients read one part of it or the other.
func parseVersion(body []byte) (string, []byte) {
	var info struct{ GitVersion, Major, Minor string }
	if json.Unmarshal(body, &info) != nil {
		return "", nil
	}
	of := ReleaseOf(info.GitVersion)
	agrees := func(said string, is uint) bool { // GKE and EKS say 33+
		return said == "" || strings.TrimRight(said, "+") == strconv.FormatUint(uint64(is), 10)
	}
	if of == (release{}) || !agrees(info.Major, of.Major) || !agrees(info.Minor, of.Minor) {
		return "", nil
	}
	return info.GitVersion, bytes.Clone(body)
}

func parseIndex(parts []part, budget *catalog.Budget) (any, error) {
	return catalog.ParseOpenAPIIndex(parts[0].body, budget)
}

func parseSwagger(parts []part, budget *catalog.Budget) (any, error) {
	_, err := catalog.ParseSwagger(parts[0].body, budget)
	budget.Held = int64(len(parts[0].body))
	return bytes.Clone(parts[0].body), err
}

func digestOf(name string, parts []part) digest {
	h := sha256.New()
	fmt.Fprintf(h, "%q", name)
	for _, p := range parts {
		fmt.Fprintf(h, "%q %d ", p.path, len(p.body))
		h.Write(p.body)
	}
	return digest(h.Sum(nil))
}

// supportedSkew is how many minor releases components of one cluster of Kubernetes may be
// apart. Clusters of one fleet are as a rule not further apart either.
const supportedSkew = 3

// release is a minor release of Kubernetes, as in v1.36.0-eks-1. Its zero value is none.
type release struct{ Major, Minor uint }

// ReleaseOf returns the release of a version of Kubernetes, or none if it is no version.
func ReleaseOf(version string) release {
	parsed, err := utilversion.ParseSemantic(version)
	if err != nil {
		return release{}
	}
	return release{parsed.Major(), parsed.Minor()}
}

// Before reports whether r is older than other.
func (r release) Before(other release) bool {
	return r.Major < other.Major || r.Major == other.Major && r.Minor < other.Minor
}

// Near reports whether two releases can be of one fleet.
func (r release) Near(other release) bool {
	return r.Major == other.Major && max(r.Minor, other.Minor)-min(r.Minor, other.Minor) <= supportedSkew
}
