package agents

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// noise is how much of the machine other processes use while a test measures
// times. The limits of a machine that does nothing else are stretched by it, and
// by nothing else: a server that waits instead of working is late on any machine.
type noise struct {
	began time.Time
	busy  time.Duration // of all processors, by all processes
	own   time.Duration // processor time of the test's own processes
}

// mostNoise is the share of the machine that is taken for others' at most.
const mostNoise = 0.9

func startNoise(t *testing.T, own time.Duration) noise {
	t.Helper()
	busy, err := machineBusy()
	if err != nil {
		t.Fatal(err)
	}
	return noise{time.Now(), busy, own}
}

// stretch returns by how much times are longer than on a machine that does
// nothing else: 1 if others did nothing, 2 if they had half of the machine.
func (n noise) stretch(t *testing.T, own time.Duration) float64 {
	t.Helper()
	busy, err := machineBusy()
	if err != nil {
		t.Fatal(err)
	}
	others := max(0, (busy-n.busy)-(own-n.own))
	share := min(mostNoise, others.Seconds()/(time.Since(n.began).Seconds()*float64(runtime.NumCPU())))
	return 1 / (1 - share)
}

// machineBusy returns the processor time that Linux has counted since it
// started: what is neither idle nor waiting for a disk.
func machineBusy() (time.Duration, error) {
	file, err := os.Open("/proc/stat")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Scan()
	fields := strings.Fields(lines.Text())
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("reading /proc/stat: %q is not the line of all processors", lines.Text())
	}
	var ticks int64
	for i, field := range fields[1:9] { // user nice system idle iowait irq softirq steal
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		if i != 3 && i != 4 {
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / 100, nil
}
