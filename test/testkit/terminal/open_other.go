//go:build !linux

package terminal

import (
	"errors"
	"os"
)

func open() (control, program *os.File, err error) {
	return nil, nil, errors.ErrUnsupported
}
