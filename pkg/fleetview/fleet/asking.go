package fleet

import (
	"context"
	"fmt"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

const (
	// MaxAsked bounds how many members are asked at a time for one request.
	MaxAsked = 64
	// JSONType is the type of JSON.
	JSONType = "application/json"
)

// CauseOf returns why a request or a read was canceled, if it was, and else err.
func CauseOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// SomeOf names as many as Warnings do, and counts the others.
func SomeOf(names []string) string {
	if more := len(names) - fault.MaxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:fault.MaxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
