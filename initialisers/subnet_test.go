package initialisers

import (
	"fmt"
	"testing"
)

func TestParseRoutes(t *testing.T) {
	const table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"eth0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"eth0\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n" +
		"x\tzz\n"
	got := fmt.Sprint(parseRoutes(table))
	if got != "[0.0.0.0/0 192.168.2.0/24]" {
		t.Errorf("got %s", got)
	}
}

func FuzzParseRoutes(f *testing.F) {
	f.Add("eth0\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
	f.Fuzz(func(_ *testing.T, table string) { parseRoutes(table) })
}
