package main

import (
	"encoding/json"
	"fmt"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// shape says what the clusters have.
type shape struct {
	// Clusters have Pods pods each; what of Rows is then left is spread over their other resources.
	Clusters, Pods, Rows int
	// Large clusters have LargePods pods each and nothing else.
	Large, LargePods int
}

// theShape is what is measured, with as many rows as a flag says.
func theShape(clusters, rows int) shape {
	return shape{Clusters: clusters, Pods: 10, Rows: rows, Large: min(60, clusters), LargePods: 100}
}

// kind is an indexed resource, and how many rows of it each cluster has.
type kind struct {
	feed.Definition
	hasImages bool
}

// kinds are those that the chart has the index keep.
var kinds = []kind{
	defined("", "v1", "pods", "Pod", true, "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"),
	defined("", "v1", "services", "Service", true, "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"),
	defined("", "v1", "nodes", "Node", false, "Status", "Roles", "Age", "Version", "Internal-IP", "External-IP", "OS-Image"),
	defined("", "v1", "namespaces", "Namespace", false, "Status", "Age"),
	defined("apps", "v1", "deployments", "Deployment", true, "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"),
	defined("apps", "v1", "statefulsets", "StatefulSet", true, "Ready", "Age", "Containers", "Images"),
	defined("apps", "v1", "daemonsets", "DaemonSet", true, "Desired", "Current", "Ready", "Age", "Containers", "Images"),
	defined("batch", "v1", "jobs", "Job", true, "Status", "Completions", "Duration", "Age", "Containers", "Images"),
	defined("batch", "v1", "cronjobs", "CronJob", true, "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age"),
	defined("networking.k8s.io", "v1", "ingresses", "Ingress", true, "Class", "Hosts", "Address", "Ports", "Age"),
}

// thePods is the first of kinds.
const thePods = 0

func defined(group, version, resource, name string, isNamespaced bool, columns ...string) kind {
	k := kind{Definition: feed.Definition{Resource: feed.Resource{Group: group, Resource: resource}, Version: version, Kind: name, Namespaced: isNamespaced,
		Columns: []feed.Column{{Name: "Name", Type: "string", Format: "name", Description: "Name must be unique within a namespace."}}}}
	for i, column := range columns {
		k.Columns = append(k.Columns, feed.Column{Name: column, Type: "string", Description: "What kubectl explain says of this column.", Priority: int32(i / 5), Age: column == "Age"})
		k.hasImages = k.hasImages || column == "Images"
	}
	k.hasImages = k.hasImages || resource == "pods"
	return k
}

// indexed are the resources as a flag of the index has them.
func indexed() (names []string) {
	for _, k := range kinds {
		names = append(names, k.Resource.String())
	}
	return names
}

// member is one cluster.
type member struct {
	name string
	// first is the number of its first row among those of all clusters.
	first int
	// counts are how many rows it has of each of kinds.
	counts []int
}

// members returns the clusters, and how many rows they have together.
func (s shape) members() (all []*member, rows int) {
	add := func(name string, pods, others int) {
		m := &member{name: name, first: rows, counts: make([]int, len(kinds))}
		m.counts[thePods] = pods
		for i := range others {
			m.counts[1+i%(len(kinds)-1)]++
		}
		rows += pods + others
		all = append(all, m)
	}
	for i := range s.Large {
		add(largeName(i), s.LargePods, 0)
	}
	left := max(0, s.Rows-s.Large*s.LargePods-s.Clusters*s.Pods)
	for i := range s.Clusters {
		others := left / s.Clusters
		if i < left%s.Clusters {
			others++
		}
		add(clusterName(i), s.Pods, others)
	}
	return all, rows
}

// total is how many rows there are.
func (s shape) total() int {
	_, rows := s.members()
	return rows
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%04d", i) }
func largeName(i int) string   { return fmt.Sprintf("large-%02d", i) }
func uidOf(name string) string { return "uid-of-" + name }

// Words that are searched for: one that each row has, one of a row in a thousand, and one of a single row.
const wordOfAll, wordOfSome, someOf = "nginx", "log4j", 1000

func wordOfOne(number int) string { return fmt.Sprintf("u%07x", number) }

// namespaces is how many namespaces a cluster's rows are in.
const namespaces = 4

// firstVersion is the resourceVersion of rows that have not changed.
const firstVersion = 1000

// keyOf is that of a row: the n-th of a kind.
func (m *member) keyOf(k *kind, n int) feed.Key {
	key := feed.Key{Name: fmt.Sprintf("web-%s-%s", wordOfOne(m.number(k, n)), k.Resource.Resource[:3])}
	if k.Namespaced {
		key.Namespace = fmt.Sprintf("shop-%d", n%namespaces)
	}
	return key
}

// number is that of a row among those of all clusters.
func (m *member) number(k *kind, n int) int {
	number := m.first + n
	for i := range kinds {
		if &kinds[i] == k {
			break
		}
		number += m.counts[i]
	}
	return number
}

func (m *member) uid(k *kind, n int) string {
	return fmt.Sprintf("5c4d1e3a-1111-4222-8333-%012x", m.number(k, n))
}

// row is what a cluster says of an object.
func (m *member) row(k *kind, n, version int) feed.Row {
	number := m.number(k, n)
	row := feed.Row{Key: m.keyOf(k, n), UID: m.uid(k, n), Version: fmt.Sprint(version), Created: 1_795_000_000 + int64(number%1_000_000),
		Labels: map[string]string{"app.kubernetes.io/name": wordOfAll, "app.kubernetes.io/instance": "shop", "pod-template-hash": fmt.Sprintf("%08x", number*2654435761%(1<<32))}}
	if number%someOf == 0 {
		row.Labels["app.kubernetes.io/component"] = wordOfSome
	}
	if k.hasImages {
		row.Images = []string{"registry.example.com/platform/" + wordOfAll + ":1.25.3-alpine"}
	}
	state := "Running"
	switch {
	case version != firstVersion && version%2 == 1:
		state = "Pending"
	case number%100 == 50:
		state = "CrashLoopBackOff"
	}
	if k.Resource.Resource == "pods" {
		row.Node, row.Owner = fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", number%251, n%10), "ReplicaSet/web-7d4b9c6f5"
	}
	cells := make([]any, 0, len(k.Columns))
	for _, column := range k.Columns {
		switch column.Name {
		case "Name":
			cells = append(cells, row.Name)
		case "Status":
			cells = append(cells, state)
		case "Age":
			cells = append(cells, nil)
		case "Node":
			cells = append(cells, row.Node)
		case "IP", "Cluster-IP", "Internal-IP":
			cells = append(cells, fmt.Sprintf("10.0.%d.%d", number>>8&255, number&255))
		case "Images":
			cells = append(cells, row.Images[0])
		case "Ready":
			cells = append(cells, "1/1")
		default:
			cells = append(cells, "<none>")
		}
	}
	var err error
	if row.Cells, err = json.Marshal(cells); err != nil {
		panic(err) // of strings
	}
	return row
}
