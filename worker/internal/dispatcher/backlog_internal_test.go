package dispatcher

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store/storetest"
)

// A value that cannot be measured becomes NaN: otherwise the last value would be shown as long as
// Postgres is down.
func TestBacklog_UnmeasuredValuesAreNaN(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	registry := prometheus.NewRegistry()
	b := newBacklog(Params{Store: d.Store, Registry: registry})
	for _, known := range []bool{true, false} {
		if _, err := b.measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) != 6 {
			t.Errorf("%d metrics, want 6", len(families))
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if got := m.GetGauge().GetValue(); math.IsNaN(got) == known {
					t.Errorf("%s %v is %g want a number: %t", f.GetName(), m.GetLabel(), got, known)
				}
			}
		}
		d.Store.Close()
	}
}
