package chaos

import (
	"context"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/load"
	"email-gateway/shared/service"
)

const (
	// calibration is the fault-free phase at the beginning of each run, without mailings. It
	// measures the current throughput of this machine.
	calibration = 10 * time.Second
	// warmUp is excluded from the measurement: programs open connections and fill caches.
	warmUp = 3 * time.Second
)

// calibrate waits for the end of the phase and returns the throughput in emails per second: the
// smaller of the accepted emails and those that SES accepted.
func calibrate(ctx context.Context, c *cluster.Cluster, ledger *load.Ledger) (rate float64, err error) {
	if err := service.Pause(ctx, warmUp); err != nil {
		return 0, err
	}
	start, accepted, taken := time.Now(), ledger.Accepted(), c.Mail.Accepted()
	if err := service.Pause(ctx, calibration-warmUp); err != nil {
		return 0, err
	}
	return float64(min(ledger.Accepted()-accepted, c.Mail.Accepted()-taken)) / time.Since(start).Seconds(), nil
}
