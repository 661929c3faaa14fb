// Package versioned has a client for properties of a cluster.
package versioned

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"sigs.k8s.io/about-api/pkg/apis/v1alpha1"
)

// Interface is a client for the API group about.k8s.io.
type Interface interface {
	AboutV1alpha1RESTClient() rest.Interface
}

// Clientset implements Interface.
type Clientset struct{ about rest.Interface }

// AboutV1alpha1RESTClient returns the client for version v1alpha1.
func (c *Clientset) AboutV1alpha1RESTClient() rest.Interface { return c.about }

// NewForConfig returns a client that talks to the kube-apiserver of config.
func NewForConfig(config *rest.Config) (*Clientset, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	group := rest.CopyConfig(config)
	group.APIPath, group.GroupVersion = "/apis", &v1alpha1.GroupVersion
	group.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	about, err := rest.RESTClientFor(group)
	if err != nil {
		return nil, err
	}
	return &Clientset{about}, nil
}
