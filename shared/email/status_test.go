package email_test

import (
	"testing"

	"email-gateway/shared/email"
)

func TestStatus_Predicates(t *testing.T) {
	t.Parallel()
	type may struct{ final, claimable, replayable bool }
	want := map[email.Status]may{
		email.Pending:        {claimable: true},
		email.Enqueued:       {claimable: true},
		email.RetryScheduled: {claimable: true},
		email.Processing:     {},
		email.OutcomeUnknown: {},
		email.Sent:           {final: true},
		email.Suppressed:     {final: true},
		email.Failed:         {final: true, replayable: true},
		email.Expired:        {final: true, replayable: true},
		email.Cancelled:      {final: true, replayable: true},
	}
	if len(email.Statuses()) != len(want) {
		t.Errorf("Statuses() lists %d, the table %d", len(email.Statuses()), len(want))
	}
	for _, status := range email.Statuses() {
		got := may{status.Final(), status.Claimable(), status.Replayable()}
		if got != want[status] {
			t.Errorf("%s: got %+v, want %+v", status, got, want[status])
		}
	}
}

func TestQueueFor_SplitsTheTenPriorities(t *testing.T) {
	t.Parallel()
	want := map[string][]int{
		email.QueueHigh:   {1, 2, 3},
		email.QueueNormal: {4, 5, 6, 7},
		email.QueueLow:    {8, 9, 10},
	}
	for queue, priorities := range want {
		for _, p := range priorities {
			if got := email.QueueFor(p); got != queue {
				t.Errorf("QueueFor(%d) = %s, want %s", p, got, queue)
			}
		}
	}
	if email.QueueFor(email.DefaultPriority) != email.QueueNormal {
		t.Error("the default priority must go to the normal queue")
	}
}

func TestQueueWeight_SharesTenTasks(t *testing.T) {
	t.Parallel()
	sum, before := 0, 10
	for _, queue := range email.Queues() {
		weight := email.QueueWeight(queue)
		if weight >= before {
			t.Errorf("%s weighs %d, not less than the more urgent %d", queue, weight, before)
		}
		sum, before = sum+weight, weight
	}
	if sum != 10 {
		t.Errorf("weights sum to %d, want 10", sum)
	}
}

func TestQueueWeight_UnknownQueue(t *testing.T) {
	t.Parallel()
	if got := email.QueueWeight("email:send:urgent"); got != 0 {
		t.Errorf("a queue that is not ours weighs %d, want 0", got)
	}
}
