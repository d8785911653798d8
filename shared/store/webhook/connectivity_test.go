package webhook_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
)

// The time in which a process could connect to no endpoint does not count as the endpoint's, unless another process has recorded
// a failure within that time.
func TestResetFailingSince(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	for name, tt := range map[string]struct {
		failing, last string // intervals before now; "" = never
		otherLease    bool
		want          string // the shortest and the longest time since which it fails, in hours
	}{
		"no other process has tried since": {"50 h", "3 h", false, "0 to 1"},
		"another process has":              {"50 h", "1 h", false, "50 to 51"},
		"the lease of another":             {"50 h", "3 h", true, "50 to 51"},
		"a healthy endpoint":               {"", "3 h", false, "never"},
		"no failure that is recorded":      {"50 h", "", false, "0 to 1"},
	} {
		id := newEndpoint(t, s, d.Company(t))
		l := take(t, sender, id)
		d.Run(t, `UPDATE webhook_endpoints SET failures = CASE WHEN $2 = '' THEN 0 ELSE 3 END, failing_since = now() - nullif($2, '')::interval, last_failure_at = now() - nullif($3, '')::interval WHERE id = $1`, id, tt.failing, tt.last)
		if tt.otherLease {
			l.Token = uuid.New()
		}
		if err := sender.ResetFailingSince(t.Context(), l, 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := storetest.Ask[string](t, d, `SELECT coalesce(h || ' to ' || h + 1, 'never') FROM webhook_endpoints,
			LATERAL (SELECT floor(extract(epoch FROM now() - failing_since) / 3600)::int AS h) hours WHERE id = $1`, id); got != tt.want {
			t.Errorf("%s: failing for %s hours, want %s", name, got, tt.want)
		}
	}
}

// The endpoints that have accepted events most recently come first, one of each company; disabled ones and those that never
// have are left out.
func TestRecentlySuccessful(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	two := d.Company(t)
	for _, e := range []struct {
		host    string
		company uuid.UUID
		set     string
	}{
		{"a", d.Company(t), `last_success_at = now() - interval '2 h'`},
		{"b", two, `last_success_at = now()`},
		{"older", two, `last_success_at = now() - interval '1 h'`},
		{"never", d.Company(t), `last_success_at = NULL`},
		{"disabled", d.Company(t), `last_success_at = now(), status = 'DISABLED', disabled_at = now(), disabled_reason = 'OPERATOR'`},
		{"beyond", d.Company(t), `last_success_at = now() - interval '3 h'`},
	} {
		d.Run(t, `UPDATE webhook_endpoints SET url = $2, `+e.set+` WHERE id = $1`, newEndpoint(t, s, e.company), "https://"+e.host+".example")
	}
	got, err := sender.RecentlySuccessful(t.Context(), 2)
	if want := []string{"https://b.example", "https://a.example"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
