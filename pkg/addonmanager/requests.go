package addonmanager

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
)

// copiedRequests gives addon-framework copies of the informer's objects: it notes that it has
// approved a request before it tells the hub. If the hub refuses that, the next try would find the
// request approved, and the agent never got its certificate; and the signer would see it meanwhile.
type copiedRequests struct {
	certificatesinformers.CertificateSigningRequestInformer
}

// Lister is part of CertificateSigningRequestInformer.
func (r copiedRequests) Lister() certificateslisters.CertificateSigningRequestLister {
	return copyingLister{r.CertificateSigningRequestInformer.Lister()}
}

// copyingLister copies what Get returns; addon-framework does not call List.
type copyingLister struct {
	certificateslisters.CertificateSigningRequestLister
}

// Get is part of CertificateSigningRequestLister.
func (l copyingLister) Get(name string) (*certificatesv1.CertificateSigningRequest, error) {
	request, err := l.CertificateSigningRequestLister.Get(name)
	return request.DeepCopy(), err // of nil too
}
