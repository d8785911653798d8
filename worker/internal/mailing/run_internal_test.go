package mailing

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// A batch wakes the lanes that it has written to, and no other lane of the company.
func TestRun_Written(t *testing.T) {
	t.Parallel()
	r := &run{job: &store.MailingJob{ID: uuid.New(), CompanyID: uuid.New()}}
	emails := store.Lanes{Company: r.job.CompanyID, Queue: email.QueueLow, Mailing: r.job.ID}
	jobs := store.Lanes{Company: r.job.CompanyID, Queue: email.QueueMailings}
	for name, tt := range map[string]struct {
		queued int
		next   *store.Continuation
		want   []store.Lanes
	}{
		"nothing":                 {},
		"a job for later":         {next: &store.Continuation{Delay: time.Second}},
		"a job":                   {next: &store.Continuation{}, want: []store.Lanes{jobs}},
		"emails":                  {queued: 1, want: []store.Lanes{emails}},
		"emails and a job":        {queued: 1, next: &store.Continuation{}, want: []store.Lanes{emails, jobs}},
		"emails, a job for later": {queued: 1, next: &store.Continuation{Delay: time.Second}, want: []store.Lanes{emails}},
	} {
		if got := r.written(store.Expansion{Continue: tt.next}, tt.queued); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
