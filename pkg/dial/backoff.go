package dial

import (
	"math/rand/v2"
	"time"
)

// FullJitter returns the reconnect delay after that many failures in a row: a random
// time up to 0.5 s, 1 s, 2 s … 30 s.
func FullJitter(failures int) time.Duration {
	return Jitter(500*time.Millisecond, 30*time.Second)(failures)
}

// Jitter returns random delays up to a limit that starts at base and doubles with each
// failure after the first, up to most. Both must be positive.
func Jitter(base, most time.Duration) func(failures int) time.Duration {
	return func(failures int) time.Duration {
		limit := base
		for ; failures > 1 && limit < most; failures-- {
			limit *= 2
		}
		return rand.N(min(limit, most))
	}
}
