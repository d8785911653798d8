package main

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/blob"
	"email-gateway/shared/service"
	"email-gateway/shared/telemetry"
)

// storage is a Bucket that logs why it does not respond.
type storage struct {
	*blob.Bucket
	ping func(context.Context) error
}

func newStorage(log *slog.Logger, bucket *blob.Bucket) storage {
	return storage{bucket, telemetry.NewDependencyLog(log).Wrap("storage", bucket.Ping)}
}

// Ping is that of the Bucket.
func (s storage) Ping(ctx context.Context) error { return s.ping(ctx) }

const (
	markTime  = 30 * time.Second // for one attempt
	markDelay = 10 * time.Second // between attempts
)

// mark returns the part that marks the storage as the installation's when the api starts, so that the other programs find the
// marker before the first upload. Later each health check and each upload checks the marker. Ping logs what is wrong, so the
// loop's own lines are left out.
func (s storage) mark() service.Service {
	return service.NewLoop(service.LoopParams{
		Log: slog.New(slog.DiscardHandler), Interval: never, ErrorDelay: markDelay, RunOnce: func(ctx context.Context) (more bool, err error) {
			ctx, cancel := context.WithTimeout(ctx, markTime)
			defer cancel()
			return false, s.Ping(ctx)
		},
	})
}
