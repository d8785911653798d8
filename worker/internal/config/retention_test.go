package config_test

import (
	"strings"
	"testing"
	"time"

	"email-gateway/worker/internal/config"
)

func TestRetention(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]config.Retention{
		"":                     usualRetention,
		"RETENTION_OUTBOX=36h": {Outbox: config.Age(36 * time.Hour), Files: 30 * day, Unstarted: 30 * day, Entries: 365 * day, Logs: 365 * day, DeletedRecipients: 400 * day},
		"RETENTION_DELETED_RECIPIENTS=0 RETENTION_FILES=0":        {Outbox: 30 * day, Unstarted: 30 * day, Entries: 365 * day, Logs: 365 * day},
		"RETENTION_HASHES=90d":                                    {Outbox: 30 * day, Files: 30 * day, Unstarted: 30 * day, Entries: 365 * day, Logs: 365 * day, Hashes: 90 * day, DeletedRecipients: 400 * day},
		"RETENTION_OUTBOX=0 RETENTION_ENTRIES=0 RETENTION_LOGS=0": {Files: 30 * day, Unstarted: 30 * day, DeletedRecipients: 400 * day},
		"RETENTION_OUTBOX=7d RETENTION_ENTRIES=7d RETENTION_LOGS=7d": {
			Outbox: 7 * day, Files: 30 * day, Unstarted: 30 * day, Entries: 7 * day, Logs: 7 * day, DeletedRecipients: 400 * day,
		},
	} {
		got, err := config.ReadDispatcher(append(strings.Fields(set), database, redis))
		if err != nil || got.Retention != want {
			t.Errorf("%q: %+v, %v", set, got.Retention, err)
		}
		if got.KeepBodies() != want.Outbox || got.KeepEvents() != want.Logs {
			t.Errorf("%q: bodies %v, events %v: not as long as rows and logs", set, got.KeepBodies(), got.KeepEvents())
		}
	}
	got, err := config.ReadDispatcher([]string{database, redis, "RETENTION_BODIES=2d", "RETENTION_EVENTS=90d"})
	if err != nil || got.KeepBodies() != 2*day || got.KeepEvents() != 90*day {
		t.Errorf("bodies %v, events %v, %v", got.KeepBodies(), got.KeepEvents(), err)
	}
}

func TestRetention_Mistakes(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"RETENTION_OUTBOX=30":               "RETENTION_OUTBOX: must be days or hours, such as 30d or 36h, or 0 for ever",
		"RETENTION_OUTBOX=-1d":              "RETENTION_OUTBOX: must be days or hours",
		"RETENTION_FILES=a month":           "RETENTION_FILES: must be days or hours",
		"RETENTION_FILES=1h":                "RETENTION_FILES: must be 1d to 3650d, or 0 for ever",
		"RETENTION_HASHES=1h":               "RETENTION_HASHES: must be 1d to 3650d, or 0 for ever",
		"RETENTION_LOGS=4000d":              "RETENTION_LOGS: must be 1d to 3650d, or 0 for ever",
		"RETENTION_BODIES=31d":              "RETENTION_BODIES: must not be longer than RETENTION_OUTBOX",
		"RETENTION_BODIES=0":                "RETENTION_BODIES: must not be longer than RETENTION_OUTBOX",
		"RETENTION_LOGS=29d":                "RETENTION_LOGS: must not be shorter than RETENTION_OUTBOX",
		"RETENTION_OUTBOX=0":                "RETENTION_LOGS: must not be shorter than RETENTION_OUTBOX",
		"RETENTION_ENTRIES=29d":             "RETENTION_ENTRIES: must not be shorter than RETENTION_OUTBOX",
		"RETENTION_EVENTS=29d":              "RETENTION_EVENTS: must not be shorter than RETENTION_OUTBOX",
		"RETENTION_EVENTS=366d":             "RETENTION_EVENTS: must not be longer than RETENTION_LOGS",
		"RETENTION_DELETED_RECIPIENTS=366d": "RETENTION_DELETED_RECIPIENTS: must be 367d or more, or 0 for ever",
	} {
		_, err := config.ReadDispatcher(append(strings.Split(set, "|"), database, redis))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
}
