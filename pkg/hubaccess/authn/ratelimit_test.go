package authn

import (
	"context"
	"encoding/base64"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// jwtOf is a token of an issuer and key.
func jwtOf(issuer, key, id string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode(fmt.Appendf(nil, `{"alg":"ES256","kid":%q}`, key)) + "." + encode(fmt.Appendf(nil, `{"iss":%q,"sub":%q}`, issuer, id)) + ".c2ln"
}

// TestFloods has many send tokens that nobody knows, and in the middle of that
// somebody whose token is good and new. The hub must not be asked about many.
func TestFloods(t *testing.T) {
	const perSecond, lasts = 1000, 10
	for _, tc := range []struct {
		name string
		// from is where the i-th bad token comes from, and bad what it is.
		from func(i int) string
		bad  func(i int) string
		// user is where the good one comes from.
		user string
		most limit
	}{
		{name: "from one address, which is the user's too", from: func(int) string { return "203.0.113.1" }, user: "203.0.113.1", most: sourceLimit},
		{name: "from one /64, which is the user's too", from: func(i int) string { return fmt.Sprintf("2001:db8::%x", i) }, user: "2001:db8::ffff", most: sourceLimit},
		{name: "from one network", from: func(i int) string { return fmt.Sprintf("203.0.%d.%d", i/200%250, i%200) }, user: "203.0.251.1", most: networkLimit},
		{name: "from one /40", from: func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i) }, user: "2001:db8:0:ffff::1", most: networkLimit},
		{name: "from everywhere", from: func(i int) string { return fmt.Sprintf("%d.%d.1.1", 1+i%200, i/200) }, user: "203.0.113.1", most: allLimit},
		{name: "with made-up JWTs from everywhere", from: func(i int) string { return fmt.Sprintf("%d.%d.1.1", 1+i%200, i/200) }, user: "203.0.113.1", most: allLimit,
			bad: func(i int) string { return jwtOf(fmt.Sprint("https://issuer-", i), "key", "eve") }},
		{name: "with the issuer's name and another key", from: func(i int) string { return fmt.Sprintf("%d.%d.1.1", 1+i%200, i/200) }, user: "203.0.113.1", most: allLimit,
			bad: func(i int) string { return jwtOf("https://issuer", fmt.Sprint("key-", i), "eve") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startAsking(t)
				for i := range 5 {
					d.api.User(jwtOf("https://issuer", "key", fmt.Sprint("user-", i)), fmt.Sprint("user-", i))
				}
				d.knownFrom("198.51.100.1", jwtOf("https://issuer", "key", "user-0"))
				var flood sync.WaitGroup
				flood.Go(func() {
					tick := time.NewTicker(time.Second / perSecond)
					defer tick.Stop()
					for i := range perSecond * lasts {
						token := fmt.Sprint("bad-", i)
						if tc.bad != nil {
							token = tc.bad(i)
						}
						flood.Go(func() { d.knownFrom(tc.from(i), token) })
						<-tick.C
					}
				})
				for i := range 4 {
					time.Sleep(2 * time.Second)
					name := fmt.Sprint("user-", i+1)
					began := time.Now()
					if got := d.knownFrom(tc.user, jwtOf("https://issuer", "key", name)); got != name || time.Since(began) > time.Second {
						t.Errorf("a new and good token was answered %q after %v", got, time.Since(began))
					}
				}
				flood.Wait()
				most := tc.most.burst + lasts*int(tc.most.perSecond) + 10
				if d.api.Lock(); d.api.Reviews > most {
					t.Errorf("the hub was asked %d times, want %d at most", d.api.Reviews, most)
				}
				d.api.Unlock()
			})
		})
	}
}

// TestTurns has a hub that is slow: it is asked few questions at a time, and a flood
// waits behind the others.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startAsking(t)
		d.api.Slow = 500 * time.Millisecond
		d.api.User("good", "jane")
		var flood sync.WaitGroup
		for i := range 100 {
			flood.Go(func() { d.knownFrom("203.0.113.1", fmt.Sprint("bad-", i)) })
		}
		synctest.Wait()
		began := time.Now()
		if got := d.knownFrom("198.51.100.1", "good"); got != "jane" || time.Since(began) > 2*d.api.Slow {
			t.Errorf("a good token was answered %q after %v, want jane within %v", got, time.Since(began), 2*d.api.Slow)
		}
		flood.Wait()
		if most := d.api.Most.Load(); most != maxReviews {
			t.Errorf("%d questions at a time, want %d", most, maxReviews)
		}
	})
}

// TestAClusterVouchesForItself has a cluster that accepts every token: they are good there and nowhere
// else, and those that the hub or another cluster knew are remembered.
func TestAClusterVouchesForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRateLimiter()
		l.verified("of the hub", "")
		l.trust("honest", "cluster1")
		for i := range maxCredentials + 1 {
			l.trust(fmt.Sprint("token", i), "hostile")
		}
		last := fmt.Sprint("token", maxCredentials)
		for _, tc := range []struct {
			credential, cluster string
			want                bool
		}{{"of the hub", "cluster1", true}, {"honest", "cluster1", true}, {"honest", "hostile", false}, {last, "hostile", true}, {last, "cluster1", false}, {last, "", false}, {"token0", "hostile", false}} {
			if got := l.knows(tc.credential, tc.cluster); got != tc.want {
				t.Errorf("%q at cluster %q is known: %t, want %t", tc.credential, tc.cluster, got, tc.want)
			}
		}
		admitted := 0
		for range 1000 {
			if l.admit(last, "cluster1", "", "192.0.2.1") {
				admitted++
			}
		}
		if admitted != sourceLimit.burst {
			t.Errorf("%d requests of a token that the hostile cluster accepted were let through to another one, want %d", admitted, sourceLimit.burst)
		}
		l.forget("honest", "cluster1")
		if l.knows("honest", "cluster1") {
			t.Error("a token that the cluster refuses now is known")
		}
	})
}

func TestRefusalsAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRateLimiter()
		began := time.Now()
		gone, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if l.holdBack(gone); time.Since(began) != refusalDelay/2 {
				t.Errorf("a client that went away was held for %v", time.Since(began))
			}
		})
		for range maxHeld - 1 {
			wg.Go(func() {
				if l.holdBack(t.Context()); time.Since(began) != refusalDelay {
					t.Errorf("held for %v, want %v", time.Since(began), refusalDelay)
				}
			})
		}
		synctest.Wait()
		if l.holdBack(t.Context()); time.Since(began) != 0 {
			t.Errorf("one more was held for %v, want not at all", time.Since(began))
		}
		time.Sleep(refusalDelay / 2)
		cancel()
		wg.Wait()
	})
}
