// Package plainhttp asks processes of tests, demos and benchmarks for what they
// serve to everybody: metrics, health, a pod's page.
package plainhttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Get is the body that url, http://…, is answered with; an answer other than 200
// is an error that has it. It leaves no connection open: who asks may count those.
func Get(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return string(body), err
}
