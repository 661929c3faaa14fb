package dial

import (
	"math/rand/v2"
	"time"
)

// FullJitter is the reconnect delay after that many failures in a row: between
// nothing and 0.5 s, 1 s, 2 s … 30 s.
func FullJitter(failures int) time.Duration {
	return Jitter(500*time.Millisecond, 30*time.Second)(failures)
}

// Jitter returns delays between nothing and a limit that starts at base and
// doubles with each failure after the first until it is most. Both must be
// positive.
func Jitter(base, most time.Duration) func(failures int) time.Duration {
	return func(failures int) time.Duration {
		limit := base
		for ; failures > 1 && limit < most; failures-- {
			limit *= 2
		}
		return rand.N(min(limit, most))
	}
}
