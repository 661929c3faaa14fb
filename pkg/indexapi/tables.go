package indexapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

const (
	// TablesPath takes a POST with a TablesRequest.
	TablesPath = "/tables"
	// MaxClusters bounds the clusters of a request, and MaxRequest its bytes.
	MaxClusters, MaxRequest = 10_000, 4 << 20
	// MaxTable is how many bytes the table of one cluster has at most. A cluster with a larger one is Unindexed: its
	// kube-apiserver sends pages.
	MaxTable = 256 << 20
	// maxHead bounds what precedes a table.
	maxHead = 16 << 10
)

// Caller is the user who asks, as the proxy API asserts it to agents.
type Caller struct {
	Name   string              `json:"name"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// Cluster is one that the caller may reach. The index answers for no other, and for none that has another UID.
type Cluster struct {
	Name string `json:"name"`
	// UID is that of the ManagedCluster.
	UID string `json:"uid"`
	// Continue is that of the page before of this cluster's table; in a TablesRequest only.
	Continue string `json:"continue,omitempty"`
}

// TablesRequest asks for the tables of a resource.
type TablesRequest struct {
	Caller   Caller        `json:"caller"`
	Resource feed.Resource `json:"resource"`
	// Version is that of the resource's group. Clusters whose rows are of another one are Unindexed.
	Version string `json:"version"`
	// Namespace is the only one that is wanted; empty means all.
	Namespace string `json:"namespace,omitempty"`
	// LabelSelector and FieldSelector are as in a Kubernetes API. The second one has metadata.name and metadata.namespace
	// only.
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Metadata says that rows have their object's metadata; otherwise they have none.
	Metadata bool `json:"metadata,omitempty"`
	// Limit is how many rows each table has; 0 means all.
	Limit    int       `json:"limit,omitempty"`
	Clusters []Cluster `json:"clusters"`
}

// Head precedes the table of one cluster. At most one of Forbidden, Absent and Unindexed is not empty, and
// then there is no table.
type Head struct {
	Cluster string `json:"cluster"`
	// Forbidden says why the caller may not list this, as a kube-apiserver does behind the resource's name.
	Forbidden string `json:"forbidden,omitempty"`
	// Absent says that the cluster does not have the resource.
	Absent bool `json:"absent,omitempty"`
	// Unindexed says why the index cannot answer for the cluster.
	Unindexed string `json:"unindexed,omitempty"`
	// AsOf is when the cluster was last heard, if it is away and the rows are as of then.
	AsOf time.Time `json:"asOf,omitzero"`
	// Incomplete says which rows are missing.
	Incomplete string `json:"incomplete,omitempty"`
	// Remembered says that the caller's right is one that the cluster gave before it went away.
	Remembered bool `json:"remembered,omitempty"`
	// Size is how many bytes the table has, which follow.
	Size int `json:"size,omitempty"`
}

// WriteTable writes the answer for one cluster. Head.Size is set from the table.
func WriteTable(w io.Writer, head Head, table []byte) error {
	head.Size = len(table)
	line, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if len(line) >= maxHead {
		return fmt.Errorf("what precedes the table has %d bytes, more than %d", len(line), maxHead)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return err
	}
	_, err = w.Write(table)
	return err
}

// TablesReader reads the answer to a TablesRequest.
type TablesReader struct{ r *bufio.Reader }

// NewTablesReader returns a TablesReader.
func NewTablesReader(r io.Reader) *TablesReader {
	return &TablesReader{bufio.NewReaderSize(r, maxHead)}
}

// Next reads the answer for the next cluster. The error is io.EOF after the last one.
func (r *TablesReader) Next() (*Head, []byte, error) {
	line, err := r.r.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0:
		return nil, nil, io.EOF
	case errors.Is(err, io.EOF):
		return nil, nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, nil, fmt.Errorf("reading what precedes a table: %w", err)
	}
	head := &Head{}
	if err := json.NewDecoder(bytes.NewReader(line)).Decode(head); err != nil {
		return nil, nil, fmt.Errorf("parsing what precedes a table: %w", err)
	}
	if head.Size < 0 || head.Size > MaxTable {
		return nil, nil, fmt.Errorf("the table of cluster %q has %d bytes, more than %d", head.Cluster, head.Size, MaxTable)
	}
	// Its size is what the other end says: memory is taken as it comes.
	var table bytes.Buffer
	if _, err := io.CopyN(&table, r.r, int64(head.Size)); err != nil {
		return nil, nil, fmt.Errorf("reading the table of cluster %q: %w", head.Cluster, noEOF(err))
	}
	return head, table.Bytes(), nil
}

// noEOF makes an end in the middle of a table one that is no end of the answer.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
