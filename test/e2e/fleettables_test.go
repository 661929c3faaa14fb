package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// asTable is what kubectl get accepts.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// tables returns a client that asks a view for Tables.
func tables(t *testing.T, cfg *rest.Config) rest.Interface {
	t.Helper()
	cfg.WarningHandler = rest.NoWarnings{}
	return suite.Clientset(t, cfg).CoreV1().RESTClient()
}

// tableList is a list of a view as Tables, all pages of it.
type tableList struct {
	Columns  []metav1.TableColumnDefinition
	Rows     []tableRow
	Warnings []string
	// Refusal is empty if the list was answered.
	Refusal string

	version string
	// live counts the rows that clusters have sent themselves.
	live int
}

// tableRow is a row without what differs between two lists of the same objects: times that pass, and the view's part of a
// version.
type tableRow struct {
	Cells                    []any
	Cluster, Namespace, Name string
	UID                      types.UID
	// Version is that of the object in its cluster.
	Version          uint64
	Created, Deleted string
	Labels           map[string]string
}

// String says which object it is, and in which version.
func (r *tableRow) String() string {
	return fmt.Sprintf("%s %s/%s %s %d %v", r.Cluster, r.Namespace, r.Name, r.UID, r.Version, r.Labels)
}

// listTables lists what is at a path, page by page.
func listTables(ctx context.Context, client rest.Interface, path string, query map[string]string) (*tableList, error) {
	list, warned := &tableList{}, map[string]bool{}
	for token := ""; ; {
		request := client.Get().AbsPath(path).SetHeader("Accept", asTable)
		for name, value := range query {
			request.Param(name, value)
		}
		if token != "" {
			request.Param("continue", token)
		}
		result := request.Do(ctx)
		for _, warning := range result.Warnings() {
			warned[warning.Text] = true
		}
		list.Warnings = slices.Sorted(maps.Keys(warned))
		if err := result.Error(); err != nil {
			var err error
			list.Refusal, err = refusalOf(result.Error())
			return list, err
		}
		raw, err := result.Raw()
		if err != nil {
			return nil, err
		}
		var page metav1.Table
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, fmt.Errorf("reading a Table: %w", err)
		}
		if page.Kind != "Table" {
			return nil, fmt.Errorf("the list is a %s, want a Table", page.Kind)
		}
		if err := list.add(&page); err != nil {
			return nil, err
		}
		if token = page.Continue; token == "" {
			return list, nil
		}
	}
}

// refusalOf is what a client is told that may not list. All other errors are none of an answer.
func refusalOf(err error) (string, error) {
	var refused apierrors.APIStatus
	if !errors.As(err, &refused) || refused.Status().Code != http.StatusForbidden {
		return "", err
	}
	s := refused.Status()
	return fmt.Sprintf("%d %s: %s", s.Code, s.Reason, s.Message), nil
}

// add adds a page.
func (l *tableList) add(page *metav1.Table) error {
	if l.Columns == nil {
		l.Columns, l.version = page.ColumnDefinitions, page.ResourceVersion
	}
	for _, row := range page.Rows {
		r, isLive, err := rowOf(row)
		if err != nil {
			return err
		}
		if isLive {
			l.live++
		}
		l.Rows = append(l.Rows, r)
	}
	return nil
}

// rowOf reads a row, and reports whether its cluster has sent it: the index does not have managedFields.
func rowOf(row metav1.TableRow) (r tableRow, isLive bool, err error) {
	for _, cell := range row.Cells {
		if text, ok := cell.(string); ok {
			cell = times.ReplaceAllString(text, "T")
		}
		r.Cells = append(r.Cells, cell)
	}
	if len(row.Object.Raw) == 0 {
		return r, false, nil
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(row.Object.Raw, &object); err != nil {
		return r, false, fmt.Errorf("reading the object of a row: %w", err)
	}
	of, err := version.Parse(object.ResourceVersion)
	if err != nil {
		return r, false, err
	}
	r.Cluster, r.Namespace, r.Name, r.UID, r.Version, r.Labels = clusterOf(&object), object.Namespace, object.Name, object.UID, of.Member, object.Labels
	r.Created = object.CreationTimestamp.UTC().Format(time.RFC3339)
	if object.DeletionTimestamp != nil {
		r.Deleted = object.DeletionTimestamp.UTC().Format(time.RFC3339)
	}
	return r, len(object.ManagedFields) > 0, nil
}

// objects says which objects a list has, in order. One that is there twice is so twice.
func (l *tableList) objects() (all []string) {
	for i := range l.Rows {
		all = append(all, l.Rows[i].String())
	}
	slices.Sort(all)
	return all
}

// indexed wants a list that the fleet index has answered for all its clusters.
func (l *tableList) indexed() error {
	switch {
	case l.Refusal != "":
		return errors.New(l.Refusal)
	case l.live > 0:
		return fmt.Errorf("%d of %d rows are from the clusters, and not from the index", l.live, len(l.Rows))
	}
	return nil
}
