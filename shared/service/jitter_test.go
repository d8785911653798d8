package service_test

import (
	"testing"
	"time"

	"email-gateway/shared/service"
)

func TestJitter(t *testing.T) {
	t.Parallel()
	low, high := time.Hour, time.Duration(0)
	for range 10_000 {
		d := service.Jitter(time.Minute, 0.5)
		low, high = min(low, d), max(high, d)
	}
	if low < 60*time.Second || low > 61*time.Second || high < 89*time.Second || high > 90*time.Second {
		t.Errorf("delays from %s to %s, want 1m to 1m30s", low, high)
	}
}
