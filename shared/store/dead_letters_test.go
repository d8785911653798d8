package store_test

import (
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/storetest"
)

// Any task, also an undecodable one, can be stored as a dead letter with its content.
func TestDeadLetterTask(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := uuid.NewString()
	for name, tt := range map[string]struct {
		task deadletter.Task
		want string // payload, last_error, outbox_id
	}{
		"JSON":      {deadletter.Task{Payload: []byte(`{"a":1}`), Detail: "no such email", TaskID: id}, `{"a": 1}|no such email|` + id},
		"text":      {deadletter.Task{Payload: []byte(`{"a":`), TaskID: "not an id"}, `"{\"a\":"||`},
		"nothing":   {deadletter.Task{}, `""||`},
		"bytes":     {deadletter.Task{Payload: []byte{0, 0xff, 'a'}, Detail: "a\x00\xffb"}, "\"\uFFFDa\"|a\uFFFDb|"},
		"NUL":       {deadletter.Task{Payload: []byte(`{"a":"\u0000"}`)}, `"{\"a\":\"\\u0000\"}"||`},
		"surrogate": {deadletter.Task{Payload: []byte(`["\ud800"]`)}, `"[\"\\ud800\"]"||`},
		"number":    {deadletter.Task{Payload: []byte(`1e999999999`)}, `"1e999999999"||`},
	} {
		tt.task.Target, tt.task.Reason = "email:send", "INVALID_PAYLOAD"
		if err := d.Store.DeadLetterTask(t.Context(), tt.task); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := ask[string](t, d, `SELECT payload::text || '|' || coalesce(last_error, '') || '|' || coalesce(outbox_id::text, '') FROM dead_letters WHERE reason = 'INVALID_PAYLOAD'`)
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		run(t, d, `DELETE FROM dead_letters`)
	}
}
