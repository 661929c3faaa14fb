//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// openssl does what the server of test/e2e/env/hello-world-https.yaml of OCM's own
// cluster-proxy asks of OpenSSL: it makes a self-signed certificate (req), and
// serves the files of the working directory with it (s_server -WWW).
func openssl(args []string) error {
	if len(args) == 0 || args[0] != "req" && args[0] != "s_server" {
		return fmt.Errorf("openssl %q: this stand-in has req and s_server only", args)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	for _, name := range []string{"x509", "nodes", "WWW", "quiet"} {
		flags.Bool(name, false, "")
	}
	for _, name := range []string{"days", "newkey"} {
		flags.String(name, "", "")
	}
	keyOut, certOut := flags.String("keyout", "", ""), flags.String("out", "", "")
	subject, extension := flags.String("subj", "", ""), flags.String("addext", "", "")
	port, cert, key := flags.String("accept", "", ""), flags.String("cert", "", ""), flags.String("key", "", "")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "req" {
		return selfSign(*keyOut, *certOut, strings.TrimPrefix(*subject, "/CN="), *extension)
	}
	server := &http.Server{Addr: ":" + *port, ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := os.ReadFile(filepath.Join(".", filepath.Clean("/"+r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content)
	})}
	return server.ListenAndServeTLS(*cert, *key)
}

// selfSign writes a key and a certificate for the names of a subjectAltName.
func selfSign(keyFile, certFile, commonName, subjectAltName string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(subjectAltName, "subjectAltName="), ",") {
		template.DNSNames = append(template.DNSNames, strings.TrimPrefix(name, "DNS:"))
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o644)
}
