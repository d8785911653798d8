package checker

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Queue is the number of tasks on one of asynq's queues, by state.
type Queue struct {
	Name                              string
	Pending, Active, Scheduled, Retry int64
	Archived, Completed               int64
}

// Tasks is the number of tasks that will run again. The dispatchers' window limits them.
func (q Queue) Tasks() int64 { return q.Pending + q.Active + q.Scheduled + q.Retry }

// Queues counts the tasks of the email queues. It reads the states of one queue in one transaction,
// so that a task that changes its state is counted once.
func Queues(ctx context.Context, client *redis.Client) ([]Queue, error) {
	queues := make([]Queue, 0, len(queueNames))
	for _, name := range queueNames {
		base := "asynq:{" + name + "}:"
		pipe := client.TxPipeline()
		pending, active := pipe.LLen(ctx, base+"pending"), pipe.LLen(ctx, base+"active")
		scheduled, retry := pipe.ZCard(ctx, base+"scheduled"), pipe.ZCard(ctx, base+"retry")
		archived, completed := pipe.ZCard(ctx, base+"archived"), pipe.ZCard(ctx, base+"completed")
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, fmt.Errorf("measure queue %s: %w", name, err)
		}
		queues = append(queues, Queue{
			Name: name, Pending: pending.Val(), Active: active.Val(), Scheduled: scheduled.Val(), Retry: retry.Val(),
			Archived: archived.Val(), Completed: completed.Val(),
		})
	}
	return queues, nil
}

// checkQueues checks that Redis holds only archived tasks, at most one per FAILED event.
func (c *Checker) checkQueues(ctx context.Context) (err error) {
	client, err := c.cluster.OpenRedis()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	queues, err := Queues(ctx, client)
	if err != nil {
		return err
	}
	var archived int64
	for _, q := range queues {
		archived += q.Archived
		if q.Tasks() > 0 {
			c.Findings.Add(Unfinished, "%s holds %d pending, %d active, %d scheduled and %d retry tasks", q.Name, q.Pending, q.Active, q.Scheduled, q.Retry)
		}
	}
	if archived = max(archived, c.Archived); archived > int64(c.failures) {
		c.Findings.Add(Size, "%d tasks were archived, and emails failed %d times", archived, c.failures)
	}
	return nil
}
