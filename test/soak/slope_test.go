package soak

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestGrows has what a process may take over the time of a run, and what a leak looks like.
func TestGrows(t *testing.T) {
	const count = 400
	noise := rand.New(rand.NewPCG(1, 2))
	noisy := func(base, by float64) float64 { return base + by*noise.NormFloat64() }
	for name, tc := range map[string]struct {
		measure int
		of      func(x float64) float64 // of the time, from 0 to 1
		want    bool
	}{
		"noise":                      {goroutines, func(float64) float64 { return noisy(300, 30) }, false},
		"warm-up":                    {resident, func(x float64) float64 { return noisy(80<<20-40<<20*math.Exp(-20*x), 1<<20) }, false},
		"long warm-up that flattens": {resident, func(x float64) float64 { return noisy(80<<20-40<<20*math.Exp(-10*x), 1<<20) }, false},
		"one step, for a client that came": {sockets, func(x float64) float64 {
			if x > 0.6 {
				return noisy(200, 3)
			}
			return noisy(100, 3)
		}, false},
		"the garbage collector's teeth":     {heap, func(x float64) float64 { return 20<<20 + 15<<20*math.Mod(40*x, 1) }, false},
		"a wave, one length of the run":     {resident, func(x float64) float64 { return noisy(80<<20+10<<20*math.Sin(2*math.Pi*x), 1<<20) }, false},
		"shrinks":                           {files, func(x float64) float64 { return noisy(300-100*x, 5) }, false},
		"grows, within the limit":           {goroutines, func(x float64) float64 { return noisy(300+20*x, 3) }, false},
		"two goroutines per fault":          {goroutines, func(x float64) float64 { return noisy(200+math.Floor(60*x)*2, 10) }, true},
		"10 MiB an hour on 40, 3 hours":     {resident, func(x float64) float64 { return noisy(40<<20+30<<20*x, 2<<20) }, true},
		"one connection in a hundred stays": {sockets, func(x float64) float64 { return noisy(60+200*x, 10) }, true},
		"file of each certificate":          {files, func(x float64) float64 { return noisy(40+90*x, 4) }, true},
		"heap, below the teeth":             {heap, func(x float64) float64 { return 20<<20 + 20<<20*x + 15<<20*math.Mod(40*x, 1) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			ended := began.Add(time.Hour)
			var samples []sample
			for i := range count {
				at := sample{at: began.Add(time.Hour * time.Duration(i) / count), kind: "proxy server", process: "a/1"}
				at.took[tc.measure] = tc.of(float64(i) / count)
				samples = append(samples, at)
			}
			trends, err := trendsOf(samples, began, ended)
			if err != nil {
				t.Fatal(err)
			}
			got := growing(trends)
			if (len(got) > 0) != tc.want || strings.Contains(tableOf(trends), "GROWS") != tc.want {
				t.Errorf("growing: %q, want %t:\n%s", got, tc.want, tableOf(trends))
			}
		})
	}
}

// TestSurvivors has a process that lives through the run beside some that do not: only the
// first one counts, if there is one.
func TestSurvivors(t *testing.T) {
	began := time.Now()
	ended := began.Add(40 * time.Minute)
	var samples []sample
	add := func(minute int, process string, taken float64) {
		s := sample{at: began.Add(time.Duration(minute) * time.Minute), kind: "proxy agent", process: process}
		s.took[heap] = taken * (1 << 20)
		samples = append(samples, s)
	}
	for minute := range 40 {
		add(minute, []string{"b/1", "b/2", "b/3", "b/4"}[minute/10], float64(1000+100*minute))
	}
	trends, err := trendsOf(samples, began, ended)
	if err != nil || len(trends) != 1 || trends[0].processes != 0 || len(growing(trends)) != 1 {
		t.Errorf("without a survivor: %+v, %v; want what there is to be compared, and to grow", trends, err)
	}
	for minute := range 40 {
		add(minute, "a/1", 100)
	}
	trends, err = trendsOf(samples, began, ended)
	if err != nil || len(trends) != 1 || trends[0].processes != 1 || trends[0].of[heap] != (quarters{100 << 20, 100 << 20, 100 << 20, 100 << 20}) {
		t.Errorf("with a survivor: %+v, %v; want it alone", trends, err)
	}
	if _, err := trendsOf(samples[:15], began, ended); err == nil {
		t.Error("samples of the first quarters only: no error")
	}
}
