package lab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// UserCertificate has a cluster sign a user's client certificate, as its
// administrator does. Certificate and key are PEM.
func UserCertificate(ctx context.Context, cluster kubernetes.Interface, user pkix.Name) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: user}, private)
	if err != nil {
		return nil, nil, err
	}
	requests := cluster.CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "user-"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
		SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = requests.Delete(context.WithoutCancel(ctx), csr.Name, metav1.DeleteOptions{}) }()
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Lab"}}
	if _, err := requests.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}); err != nil {
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := poll(limited, func(ctx context.Context) error {
		signed, err := requests.Get(ctx, csr.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if certificate = signed.Status.Certificate; len(certificate) == 0 {
			return fmt.Errorf("conditions %v", signed.Status.Conditions)
		}
		return nil
	}); err != nil {
		return nil, nil, fmt.Errorf("waiting for the certificate of %q: %w", user.CommonName, err)
	}
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}
