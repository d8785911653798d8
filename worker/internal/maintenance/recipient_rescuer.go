package maintenance

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

const (
	// recipientInterval is how often recipients with a lost message are searched.
	recipientInterval = time.Minute
	// recipientAge is the maximum time that a message needs: its retries, 10 s apart by default, and a queue of some millions
	// before it. A shorter age would only cause duplicate work.
	recipientAge = 15 * time.Minute
	// recipientBatch bounds one statement.
	recipientBatch = 1000
)

// RecipientStore has the database operations of the RecipientRescuer.
type RecipientStore interface {
	ReturnIntakes(ctx context.Context, age time.Duration, limit int) (int, error)
	Wake(ctx context.Context) error
}

// RecipientRescuer enqueues recipients again that were published to RabbitMQ and never stored, because RabbitMQ has lost its
// data or was replaced by an empty one.
type RecipientRescuer struct {
	*service.Loop
	params RecipientRescuerParams
}

// RecipientRescuerParams configure an RecipientRescuer.
type RecipientRescuerParams struct {
	Log     *slog.Logger
	Store   RecipientStore
	Actions *Actions
}

// NewRecipientRescuer makes a rescuer that is not running yet.
func NewRecipientRescuer(p RecipientRescuerParams) *RecipientRescuer {
	r := &RecipientRescuer{params: p}
	r.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: recipientInterval, RunOnce: r.runOnce, ErrorDelay: recipientInterval,
	})
	return r
}

func (r *RecipientRescuer) runOnce(ctx context.Context) (more bool, err error) {
	n, err := r.params.Store.ReturnIntakes(ctx, recipientAge, recipientBatch)
	if err != nil || n == 0 {
		return false, err
	}
	r.params.Actions.Count(recipientReturned, n)
	r.params.Log.Warn("recipients enqueued again", "count", n)
	return n == recipientBatch, r.params.Store.Wake(ctx)
}
