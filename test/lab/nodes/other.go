//go:build !linux

package nodes

// Lab and Machine exist on Linux only.
type (
	Lab     struct{}
	Machine struct{ Address string }
)
