package agentapi

import "testing"

func TestWantedServers(t *testing.T) {
	for _, tc := range []struct{ n, perAgent, want int }{
		{1, 0, 1}, {2, 0, 2}, {3, 0, 3}, {4, 0, 2}, {10, 0, 2},
		{4, 1, 1}, {4, 3, 3}, {2, 3, 2}, {3, 1, 1},
	} {
		if got := WantedServers(tc.n, tc.perAgent); got != tc.want {
			t.Errorf("of %d servers, with %d for each agent: %d, want %d", tc.n, tc.perAgent, got, tc.want)
		}
	}
}
