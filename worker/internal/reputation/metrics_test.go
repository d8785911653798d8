package reputation_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	reputationstore "email-gateway/shared/store/reputation"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/reputation"
)

// A dispatcher that has lost the database does not show its last numbers, which others may have changed.
func TestMetrics_DatabaseAway(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s := &pausedStore{}
	g := reputation.NewGuard(reputation.Params{Log: slog.New(slog.DiscardHandler), Registry: registry, Store: s})
	if err := g.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Stop(context.Background()) })
	shows := func(paused, failing string) {
		t.Helper()
		waittest.Until(t, paused+" paused, "+failing+" failing", func() bool {
			return testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP reputation_failing_checks Companies whose last check by the reputation guard failed.
# TYPE reputation_failing_checks gauge
reputation_failing_checks `+failing+`
# HELP reputation_paused_companies Companies whose mailings the reputation guard has paused.
# TYPE reputation_paused_companies gauge
reputation_paused_companies `+paused+"\n"), "reputation_failing_checks", "reputation_paused_companies") == nil
		})
	}
	shows("3", "1")
	s.away.Store(true)
	shows("NaN", "NaN")
	s.away.Store(false)
	shows("3", "1")
}

// pausedStore has three paused companies and one whose check fails.
type pausedStore struct{ away atomic.Bool }

func (s *pausedStore) SetDefaults(context.Context, bool, map[reputationstore.Rule]reputationstore.Thresholds) error {
	return nil
}

func (s *pausedStore) Due(context.Context) ([]uuid.UUID, error) {
	if s.away.Load() {
		return nil, errors.New("away")
	}
	return []uuid.UUID{uuid.Max}, nil
}

func (s *pausedStore) Check(context.Context, uuid.UUID) (reputationstore.Checked, error) {
	return reputationstore.Checked{}, errors.New("refused")
}

func (s *pausedStore) CountPaused(context.Context) (int, error) { return 3, nil }

func (s *pausedStore) Clean(context.Context, int) (int, error) { return 0, nil }
