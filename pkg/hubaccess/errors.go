package hubaccess

// RefusedError refuses a request: with which HTTP status, and what the caller can do.
type RefusedError struct {
	Code    int
	Message string
}

func (e *RefusedError) Error() string { return e.Message }
