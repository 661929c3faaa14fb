package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// signer signs as cosign does with a key. The zero value signs nothing.
type signer struct{ key *ecdsa.PrivateKey }

// readSigner reads a key as "openssl genpkey" writes it.
func readSigner(file string) (signer, error) {
	if file == "" {
		return signer{}, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return signer{}, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return signer{}, fmt.Errorf("%s is no PEM file", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if key, ok := parsed.(*ecdsa.PrivateKey); ok && key.Curve == elliptic.P256() {
		return signer{key}, nil
	}
	return signer{}, fmt.Errorf("%s is no key that signs releases, %v; make one: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out FILE", file, err)
}

// sign returns the signature of a message. It is the same each time (RFC 6979).
func (s signer) sign(message []byte) ([]byte, error) {
	sum := sha256.Sum256(message)
	return s.key.Sign(nil, sum[:], crypto.SHA256)
}

// public is the key to verify with.
func (s signer) public() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

// statementType is the payload type of an in-toto statement.
const statementType = "application/vnd.in-toto+json"

type envelope struct {
	PayloadType string              `json:"payloadType"`
	Payload     []byte              `json:"payload"`
	Signatures  []envelopeSignature `json:"signatures"`
}

type envelopeSignature struct {
	KeyID string `json:"keyid"`
	Sig   []byte `json:"sig"`
}

// envelope signs a statement as DSSE says (https://github.com/secure-systems-lab/dsse). Without a key it has no signature.
func (s signer) envelope(statement []byte) ([]byte, error) {
	signed := envelope{PayloadType: statementType, Payload: statement, Signatures: []envelopeSignature{}}
	if s.key != nil {
		signature, err := s.sign(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(statementType), statementType, len(statement), statement))
		if err != nil {
			return nil, err
		}
		signed.Signatures = append(signed.Signatures, envelopeSignature{Sig: signature})
	}
	return json.Marshal(signed)
}

const signatureAnnotation = "dev.cosignproject.cosign/signature"

// signature is what cosign has beside an image or a chart of a digest: a payload that names the digest, and its signature.
func (s signer) signature(digest v1.Hash) (v1.Image, error) {
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, digest)
	signature, err := s.sign(payload)
	if err != nil {
		return nil, err
	}
	return beside(payload, "application/vnd.dev.cosign.simplesigning.v1+json", map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signature)})
}

// attestation is an envelope as cosign has it beside what it says something of.
func attestation(envelope []byte) (v1.Image, error) {
	return beside(envelope, "application/vnd.dsse.envelope.v1+json", map[string]string{signatureAnnotation: "", "predicateType": predicateType})
}

func beside(content []byte, contentType types.MediaType, annotations map[string]string) (v1.Image, error) {
	return mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: static.NewLayer(content, contentType), Annotations: annotations})
}

// besideTag is the tag under which cosign looks for a signature (sig) or an attestation (att) of a digest.
func besideTag(digest v1.Hash, suffix string) string {
	return strings.ReplaceAll(digest.String(), ":", "-") + "." + suffix
}
