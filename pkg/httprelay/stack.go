package httprelay

// frame is what a request needs of the stack, about.
const frame = 12 << 10

// GrowStack makes the calling goroutine's stack large. A handler's goroutine is
// new for each HTTP/2 request: its stack would be copied three times on the way
// into the filters, each time with more on it.
func GrowStack() { touch(0) }

//go:noinline
func touch(i int) byte {
	var room [frame]byte
	return room[i]
}
