package proxyapi

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestValidateNamesTheFlag(t *testing.T) {
	good := []string{"--proxy-ca-cert=a", "--proxy-cert=b", "--proxy-key=c", "--agent-ca-cert=d", "--server-cert=e", "--server-key=f"}
	for flag, ok := range map[string]bool{
		"--server-port=9092": true, "--server-port=65536": false, "--health-port=-1": false, "--proxy-server=nowhere": false,
		"--agent-ca-cert=": false, "--server-key=": false, "--graceful-shutdown-timeout=-1s": false, "--min-drain-duration=0s": true,
	} {
		o := NewOptions()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(fs)
		if err := fs.Parse(append(good, flag)); err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(flag, "=")
		if err := o.Validate(); (err == nil) != ok || !ok && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want it accepted: %t", flag, err, ok)
		}
	}
}
