package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/environment"
)

func readRecipients(environ ...string) (Recipients, environment.Faults) {
	var settings struct{ Recipients }
	f := environment.Read(environ, &settings)
	settings.checkRecipients(&f)
	return settings.Recipients, f
}

func TestRecipients(t *testing.T) {
	t.Parallel()
	got, f := readRecipients()
	want := Recipients{RetryTTLMS: 10000, MaxRetries: 3, BatchSize: 1000, BatchTimeoutMS: 1000, ProcConcurrency: 8, BatchConcurrency: 2}
	if diff := cmp.Diff(want, got); diff != "" || f.Err() != nil {
		t.Errorf("defaults: %s%v", diff, f.Err())
	}
	if got.RetryTTL() != 10*time.Second || got.BatchTimeout() != time.Second || got.Prefetch() != 3000 {
		t.Errorf("%s, %s, %d", got.RetryTTL(), got.BatchTimeout(), got.Prefetch())
	}
	got, f = readRecipients("RECIPIENTS_RETRY_TTL_MS=100", "RECIPIENTS_MAX_RETRIES=0", "RECIPIENTS_BATCH_SIZE=5000",
		"RECIPIENTS_BATCH_TIMEOUT_MS=5", "RECIPIENTS_PROC_CONCURRENCY=1", "RECIPIENTS_BATCH_CONCURRENCY=8")
	want = Recipients{RetryTTLMS: 100, MaxRetries: 0, BatchSize: 5000, BatchTimeoutMS: 5, ProcConcurrency: 1, BatchConcurrency: 8}
	if diff := cmp.Diff(want, got); diff != "" || f.Err() != nil {
		t.Errorf("%s%v", diff, f.Err())
	}
	if got.Prefetch() != 45000 {
		t.Error(got.Prefetch())
	}
}

func TestRecipients_Mistakes(t *testing.T) {
	t.Parallel()
	_, f := readRecipients("RECIPIENTS_RETRY_TTL_MS=99", "RECIPIENTS_MAX_RETRIES=-1", "RECIPIENTS_BATCH_SIZE=0",
		"RECIPIENTS_BATCH_TIMEOUT_MS=0", "RECIPIENTS_PROC_CONCURRENCY=65", "RECIPIENTS_BATCH_CONCURRENCY=9")
	_, unreadable := readRecipients("RECIPIENTS_BATCH_SIZE=many")
	text := f.Err().Error() + "\n" + unreadable.Err().Error()
	for _, want := range []string{
		"RECIPIENTS_RETRY_TTL_MS: must be 100 to 3600000", "RECIPIENTS_MAX_RETRIES: must be 0 to 100", "RECIPIENTS_BATCH_SIZE: must be 1 to 5000",
		"RECIPIENTS_BATCH_TIMEOUT_MS: must be 1 to 60000", "RECIPIENTS_PROC_CONCURRENCY: must be 1 to 64", "RECIPIENTS_BATCH_CONCURRENCY: must be 1 to 8",
		`RECIPIENTS_BATCH_SIZE: must be a whole number: "many"`,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no line begins with %q:\n%s", want, text)
		}
	}
}
