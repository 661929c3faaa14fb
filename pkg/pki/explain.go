package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Reasons of a failed handshake, fit for a metric.
const (
	ReasonClockSkew   = "clock-skew"
	ReasonUnknownCA   = "unknown-ca"
	ReasonCertificate = "certificate"
	ReasonClosed      = "closed"
	ReasonOther       = "other"
)

// HandshakeReason returns why a handshake, or the first read after it, failed. In TLS
// 1.3 a client learns only by that read that its certificate was refused.
func HandshakeReason(err error) string {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired, strings.Contains(text, remoteExpired):
		return ReasonClockSkew
	case errors.As(err, &unknown), strings.Contains(text, "remote error: tls: unknown certificate authority"):
		return ReasonUnknownCA
	case errors.As(err, &invalid), strings.Contains(text, "certificate"):
		return ReasonCertificate
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ReasonClosed
	}
	return ReasonOther
}

// NoCertificate reports whether a handshake failed because the client showed no
// certificate. A client with one of a CA that the server does not name shows none.
func NoCertificate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "tls: client didn't provide a certificate")
}

// remoteExpired is crypto/tls's text of alert 45, which the other side also sends for a
// certificate that is not valid yet.
const remoteExpired = "remote error: tls: expired certificate"

// Explain adds to the error of a handshake what to do if the time is the reason:
// crypto/tls says "expired or not yet valid", which does not point to clocks.
func Explain(err error) error {
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return fmt.Errorf("%s: %w", explainTimes(invalid.Cert.NotBefore, invalid.Cert.NotAfter, time.Now()), err)
	case strings.Contains(err.Error(), remoteExpired):
		return fmt.Errorf("by the other side's clock, which here is %s, our certificate has expired or is not valid yet: clock skew, if it is new; set both clocks by NTP: %w",
			time.Now().UTC().Format(time.RFC3339), err)
	}
	return err
}

func explainTimes(notBefore, notAfter, now time.Time) string {
	if now.Before(notBefore) {
		return fmt.Sprintf("clock skew: the other side's certificate is valid from %s and the clock here says %s, so one of the two clocks is wrong by %s or more; set both by NTP",
			notBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), (notBefore.Sub(now) + backdate).Round(time.Second))
	}
	return fmt.Sprintf("the other side's certificate expired at %s and the clock here says %s: it was not renewed, or, by clock skew of %s or more, one of the two clocks is wrong; set both by NTP",
		notAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), now.Sub(notAfter).Round(time.Second))
}
