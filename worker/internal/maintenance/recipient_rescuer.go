package maintenance

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
	"email-gateway/shared/store/recipient"
)

const (
	// recipientInterval is how often recipients with a lost message are searched.
	recipientInterval = time.Minute
	// recipientAge is the minimum age at which a recipient counts as lost: a message may have a queue of some millions before it.
	// A shorter age would only cause duplicate work.
	recipientAge = 15 * time.Minute
	// recipientMargin is the time in which a message is delivered beside the waits for its retries.
	recipientMargin = 5 * time.Minute
	// recipientPage is the number of imports that one statement looks at: some 70 ms.
	recipientPage = 5000
	// recipientPause bounds the load while one company has millions of imports that are not applied: the pause after a page in
	// which nothing was lost is recipientPause times its duration. Ten million take about an hour.
	recipientPause = 20
)

// RecipientStore has the database operations of the RecipientRescuer.
type RecipientStore interface {
	ReturnIntakes(ctx context.Context, age time.Duration, after recipient.Intake, page int) (returned int, next recipient.Intake, err error)
	Wake(ctx context.Context) error
}

// RecipientRescuer enqueues recipients again that were published to RabbitMQ and never stored, because RabbitMQ has lost its
// data or was replaced by an empty one.
type RecipientRescuer struct {
	*service.Loop
	params RecipientRescuerParams
	after  recipient.Intake // where the next page begins
}

// RecipientRescuerParams configure an RecipientRescuer.
type RecipientRescuerParams struct {
	Log     *slog.Logger
	Store   RecipientStore
	Actions *Actions
	// Retries is the total time that a message may wait for its retries.
	Retries time.Duration
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
	start := time.Now()
	n, next, err := r.params.Store.ReturnIntakes(ctx, max(recipientAge, r.params.Retries+recipientMargin), r.after, recipientPage)
	if err != nil {
		return false, err
	}
	r.after = next
	more = next != recipient.Intake{}
	if n > 0 {
		r.params.Actions.Count(recipientReturned, n)
		r.params.Log.Warn("recipients enqueued again", "count", n)
		return more, r.params.Store.Wake(ctx)
	}
	if more {
		more = service.Pause(ctx, min(recipientPause*time.Since(start), recipientInterval)) == nil
	}
	return more, nil
}
