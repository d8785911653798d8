package chaos

import (
	"context"
	"time"

	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/service"
)

const (
	// calibration is the fault-free phase at the beginning of each run, without mailings. It
	// measures what this machine can do now.
	calibration = 10 * time.Second
	// warmUp is left out of the measurement: connections are opened and caches filled.
	warmUp = 3 * time.Second
)

// calibrate waits for the end of the phase and returns how many emails per second went the
// whole way: the smaller of those that were accepted and those that SES took.
func calibrate(ctx context.Context, s *stage.Stage, book *load.Book) (rate float64, err error) {
	if err := service.Pause(ctx, warmUp); err != nil {
		return 0, err
	}
	begun, accepted, taken := time.Now(), book.Accepted(), s.Mail.Taken()
	if err := service.Pause(ctx, calibration-warmUp); err != nil {
		return 0, err
	}
	return float64(min(book.Accepted()-accepted, s.Mail.Taken()-taken)) / time.Since(begun).Seconds(), nil
}
