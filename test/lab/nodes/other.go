//go:build !linux

package nodes

// Lab and Machine exist on Linux only.
type (
	Lab     struct{}
	Machine struct{ Address string }
)

// Stop is for labs on Linux.
func (*Lab) Stop() error { return nil }
