package feed

// shortNames are those of Kubernetes' own resources (k8s.io/kubernetes/pkg/registry, ShortNames). No definition
// has those of custom resources.
var shortNames = map[Resource]string{
	{Resource: "componentstatuses"}:      "cs",
	{Resource: "configmaps"}:             "cm",
	{Resource: "endpoints"}:              "ep",
	{Resource: "events"}:                 "ev",
	{Resource: "limitranges"}:            "limits",
	{Resource: "namespaces"}:             "ns",
	{Resource: "nodes"}:                  "no",
	{Resource: "persistentvolumeclaims"}: "pvc",
	{Resource: "persistentvolumes"}:      "pv",
	{Resource: "pods"}:                   "po",
	{Resource: "replicationcontrollers"}: "rc",
	{Resource: "resourcequotas"}:         "quota",
	{Resource: "serviceaccounts"}:        "sa",
	{Resource: "services"}:               "svc",

	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: "crd",
	{Group: "apps", Resource: "daemonsets"}:                                "ds",
	{Group: "apps", Resource: "deployments"}:                               "deploy",
	{Group: "apps", Resource: "replicasets"}:                               "rs",
	{Group: "apps", Resource: "statefulsets"}:                              "sts",
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}:           "hpa",
	{Group: "batch", Resource: "cronjobs"}:                                 "cj",
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: "csr",
	{Group: "events.k8s.io", Resource: "events"}:                           "ev",
	{Group: "networking.k8s.io", Resource: "ingresses"}:                    "ing",
	{Group: "networking.k8s.io", Resource: "networkpolicies"}:              "netpol",
	{Group: "policy", Resource: "poddisruptionbudgets"}:                    "pdb",
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}:              "pc",
	{Group: "storage.k8s.io", Resource: "storageclasses"}:                  "sc",
}

// Names returns what kubectl calls a resource: pods and po; deployments, deployments.apps and deploy.
func (r Resource) Names() []string {
	names := []string{r.Resource}
	if r.Group != "" {
		names = append(names, r.String())
	}
	if short := shortNames[r]; short != "" {
		names = append(names, short)
	}
	return names
}

// Names returns what objects are found by: the names of their resource, and their kind, alone and with its group.
func (d Definition) Names() []string {
	names := append(d.Resource.Names(), d.Kind)
	if d.Group != "" {
		names = append(names, d.Kind+"."+d.Group)
	}
	return names
}
