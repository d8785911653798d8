package maintenance

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

const (
	// intakeInterval is how often recipients are looked for whose message is gone.
	intakeInterval = time.Minute
	// intakeAge is how long a message may be under way: its tries, 10 s apart, and a queue of
	// some millions before it. Sooner would be no harm but work done twice.
	intakeAge = 15 * time.Minute
	// intakeBatch bounds one statement.
	intakeBatch = 1000
)

// IntakeStore is what the IntakeRescuer asks of the database.
type IntakeStore interface {
	ReturnIntakes(ctx context.Context, age time.Duration, limit int) (int, error)
	Wake(ctx context.Context) error
}

// IntakeRescuer puts recipients on their queue again that RabbitMQ took and that were never
// written down: it has lost its data, or was replaced by an empty one.
type IntakeRescuer struct {
	*service.Loop
	params IntakeRescuerParams
}

// IntakeRescuerParams make an IntakeRescuer.
type IntakeRescuerParams struct {
	Log     *slog.Logger
	Store   IntakeStore
	Actions *Actions
}

// NewIntakeRescuer makes a rescuer that is not running yet.
func NewIntakeRescuer(p IntakeRescuerParams) *IntakeRescuer {
	r := &IntakeRescuer{params: p}
	r.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: intakeInterval, RunOnce: r.runOnce, ErrorDelay: intakeInterval,
	})
	return r
}

func (r *IntakeRescuer) runOnce(ctx context.Context) (more bool, err error) {
	n, err := r.params.Store.ReturnIntakes(ctx, intakeAge, intakeBatch)
	if err != nil || n == 0 {
		return false, err
	}
	r.params.Actions.Count(intakeReturned, n)
	r.params.Log.Warn("recipients put on their queue again", "count", n)
	return n == intakeBatch, r.params.Store.Wake(ctx)
}
