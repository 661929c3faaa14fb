package discovery

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/kube-openapi/pkg/handler"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/catalog"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

const (
	// maxSwaggers is how many members' OpenAPI v2 documents are merged, and maxMerged their
	// size. Only members with groups that others lack are needed.
	maxSwaggers = 16
	maxMerged   = 64 << 20
	// maxEncoded is how many JSON values a document may have that is encoded in protobuf:
	// each takes a KiB of memory meanwhile. Kubernetes' own has 140,000.
	maxEncoded = 500_000

	// The names of protobuf: clients ask by the first, and servers answer by the second,
	// which is a valid media type (kubernetes/kube-openapi#207).
	swaggerProtobufAsked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	SwaggerProtobuf      = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

var swaggerTypes = offer(fleet.JSONType, swaggerProtobufAsked, SwaggerProtobuf)

// serveSwagger answers /openapi/v2.
func (d *Discovery) serveSwagger(w http.ResponseWriter, r *http.Request, view fleet.View, known *Resources) {
	chosen, ok := negotiation.NegotiateMediaTypeOptions(r.Header.Get("Accept"), swaggerTypes, negotiation.DefaultEndpointRestrictions)
	w.Header().Set("Vary", "Accept")
	body, err := d.swagger(r.Context(), view, known)
	c := content{kind: fleet.JSONType, body: body}
	if err == nil {
		c.etag = etagOf(body)
		if ok && chosen.Accepted.MediaType != fleet.JSONType {
			c.kind = SwaggerProtobuf
			c.body, err = d.encoded(r.Context(), body)
		}
	}
	if err != nil {
		fault.Write(w, err)
		return
	}
	writeContent(w, r, c)
}

// encoded is an OpenAPI v2 document in protobuf. One is encoded at a time.
func (d *Discovery) encoded(ctx context.Context, body []byte) ([]byte, error) {
	key := digestOf("protobuf", []part{{body: body}})
	if value, ok := d.contents.Get(key); ok {
		return value.([]byte), nil
	}
	if catalog.HasValues(body, maxEncoded) {
		return nil, fault.Refuse(http.StatusNotAcceptable, "the OpenAPI v2 document of the clusters is too large for protobuf: ask for application/json, or for /openapi/v3")
	}
	done, err := turn(ctx, d.large)
	if err != nil {
		return nil, err
	}
	defer done()
	encoded, err := handler.ToProtoBinary(body)
	if err != nil {
		return nil, fmt.Errorf("encoding an OpenAPI v2 document: %w", err)
	}
	d.contents.Put(key, encoded, int64(len(encoded)))
	return encoded, nil
}

// swagger returns the OpenAPI v2 document that most members are likely to have, with the
// paths of the groups and versions that it lacks from others. It is no merge of
// k8s.io/kube-openapi/pkg/aggregator: that renames definitions that differ, and versions
// of Kubernetes differ in most.
func (d *Discovery) swagger(ctx context.Context, view fleet.View, known *Resources) ([]byte, error) {
	all := sets.New[schema.GroupVersion]()
	for _, group := range known.Groups {
		for _, v := range group.Versions {
			all.Insert(schema.GroupVersion{Group: group.Metadata.Name, Version: v.Version})
		}
	}
	members, alike := known.byContent()
	fetch := func(m fleet.Member) (part, error) {
		a := d.ask(ctx, view, []fleet.Member{m}, askSwagger, known.fresh)[0]
		if !a.known() {
			return part{}, cmp.Or(a.err, context.Cause(ctx))
		}
		return part{path: m.Name(), body: a.value.([]byte)}, nil
	}
	base, first, absent := agreed(members, alike, fetch)
	if base < 0 {
		return nil, noAnswer(view, absent)
	}
	parts, size := []part{first}, len(first.body)
	needed := all.Difference(known.groupVersions(members[base]))
	adds := []sets.Set[schema.GroupVersion]{all}
	for _, m := range members {
		has := known.groupVersions(m).Intersection(needed)
		if len(has) == 0 || len(parts) == maxSwaggers || len(absent) >= maxDocumentTries { // each may have taken its timeout
			continue
		}
		p, err := fetch(m)
		if err != nil {
			absent = append(absent, fault.Of(m.Name(), err))
			continue
		}
		if size += len(p.body); size > maxMerged {
			break
		}
		parts, adds = append(parts, p), append(adds, has)
		needed = needed.Difference(has)
	}
	if len(parts) == 1 && len(view.Resources) == 0 {
		return first.body, nil
	}
	return d.mergeSwaggers(ctx, parts, adds, len(view.Resources) > 0)
}

// byContent returns the members with those first that most say the same as of what they
// serve, and how many these are.
func (k *Resources) byContent() (members []fleet.Member, alike int) {
	count := map[digest]int{}
	for _, served := range k.served {
		count[served.of]++
		alike = max(alike, count[served.of])
	}
	members = slices.Clone(k.Members)
	slices.SortStableFunc(members, func(a, b fleet.Member) int {
		return cmp.Compare(count[k.served[b.Name()].of], count[k.served[a.Name()].of])
	})
	return members, alike
}

// groupVersions are those that a member serves.
func (k *Resources) groupVersions(m fleet.Member) sets.Set[schema.GroupVersion] {
	all := sets.New[schema.GroupVersion]()
	for _, group := range k.served[m.Name()].groups {
		for _, v := range group.Versions {
			all.Insert(schema.GroupVersion{Group: group.Metadata.Name, Version: v.Version})
		}
	}
	return all
}

// mergeSwaggers adds to the first document, which may have all that adds has first, what
// the others add.
func (d *Discovery) mergeSwaggers(ctx context.Context, parts []part, adds []sets.Set[schema.GroupVersion], filter bool) ([]byte, error) {
	key := digestOf(fmt.Sprint("merged", adds, filter), parts) // maps are printed sorted
	if value, ok := d.contents.Get(key); ok {
		return value.([]byte), nil
	}
	done, err := turn(ctx, d.large)
	if err != nil {
		return nil, err
	}
	defer done()
	base, err := catalog.ParseSwagger(parts[0].body, &catalog.Budget{Context: ctx})
	if err != nil {
		return nil, err
	}
	if filter {
		base.Filter(func(gv schema.GroupVersion) bool { return gv.Version == "" || adds[0].Has(gv) })
	}
	for i := 1; i < len(parts); i++ {
		other, err := catalog.ParseSwagger(parts[i].body, &catalog.Budget{Context: ctx})
		if err != nil {
			return nil, err
		}
		base.Add(other, adds[i].Has)
	}
	body, err := base.JSON()
	if err != nil {
		return nil, err
	}
	d.contents.Put(key, body, int64(len(body)))
	return body, nil
}
