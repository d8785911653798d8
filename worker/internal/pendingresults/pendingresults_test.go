package pendingresults_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/pendingresults"
)

func newRedis(t *testing.T) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		t.Fatalf("REDIS_URL: %v; run the tests through ./scripts/test.sh", err)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func event(kind email.EventType, metadata map[string]any) email.Event {
	return email.Event{Type: kind, At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Metadata: metadata}
}

// results are one result of each kind.
func results() map[string]outbox.Transition {
	reason := map[string]any{"errorMessage": "timeout", "errorCode": "X"}
	all := map[string]outbox.Transition{
		"sent": {Status: email.Sent, SESMessageID: "0100-1", Events: []email.Event{event(email.EventSent, map[string]any{"sesMessageId": "0100-1"})}},
		"failed": {
			Status: email.Failed, DeadLetter: true, OutcomeUnknown: true, ErrorCode: "X", ErrorReason: "timeout",
			Events: []email.Event{event(email.EventOutcomeUnknown, reason), event(email.EventFailed, reason)},
		},
		"retry": {
			Status: email.RetryScheduled, AddThrottles: 1, Delay: time.Minute, ErrorCode: "X", ErrorReason: "timeout",
			Events: []email.Event{event(email.EventRetryScheduled, reason)},
		},
		"release": {Status: email.RetryScheduled, AddAttempts: -1, Events: []email.Event{event(email.EventRetryScheduled, map[string]any{})}},
	}
	for name, t := range all {
		t.ID, t.Token, t.Guard, t.Duration = uuid.New(), uuid.New(), outbox.GuardAttempt, time.Second
		all[name] = t
	}
	return all
}

func TestResults(t *testing.T) {
	t.Parallel()
	r := pendingresults.New(newRedis(t))
	want := make(map[uuid.UUID]outbox.Transition)
	tokens := []uuid.UUID{uuid.New()} // of no result
	for name, result := range results() {
		if err := r.Store(t.Context(), result); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want[result.Token] = result
		tokens = append(tokens, result.Token)
	}
	found, err := r.Find(t.Context(), tokens)
	if diff := cmp.Diff(want, found, cmpopts.IgnoreUnexported(outbox.Transition{})); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	recorded := tokens[1] // by a dispatcher, while its worker stores it again
	if err := errors.Join(r.MarkRecorded(t.Context(), recorded), r.Store(t.Context(), want[recorded])); err != nil {
		t.Fatal(err)
	}
	if found, err := r.Find(t.Context(), tokens[:2]); len(found) != 0 || err != nil {
		t.Errorf("recorded: %v, %v", found, err)
	}
	for _, token := range tokens {
		if byDispatcher, err := r.Remove(t.Context(), token); byDispatcher != (token == recorded) || err != nil {
			t.Errorf("removed: %t, %v", byDispatcher, err)
		}
	}
	if found, err = r.Find(t.Context(), tokens); len(found) != 0 || err != nil {
		t.Errorf("removed: %v, %v", found, err)
	}
}

// Redis gets no addresses or tax ids, and no long texts, whatever the provider says.
func TestResults_NoPersonalData(t *testing.T) {
	t.Parallel()
	client := newRedis(t)
	result, said := results()["failed"], "ana.souza@example.com 529.982.247-25 "+strings.Repeat("á", 100_000)
	result.ErrorReason, result.Events[1].Metadata = said, map[string]any{"errorMessage": said}
	if err := pendingresults.New(client).Store(t.Context(), result); err != nil {
		t.Fatal(err)
	}
	key := "email-gateway:result:" + result.Token.String()
	defer client.Del(t.Context(), key)
	value := client.Get(t.Context(), key).Val()
	if len(value) > 16<<10 || strings.Contains(value, "souza") || strings.Contains(value, "982") || !strings.Contains(value, "@e***.com") {
		t.Errorf("%d bytes: %.200s", len(value), value)
	}
	if ttl := client.TTL(t.Context(), key).Val(); ttl < time.Hour || ttl > 24*time.Hour {
		t.Errorf("it is kept for %s", ttl)
	}
	if result.Events[1].Metadata["errorMessage"] != said {
		t.Error("the worker's own result has changed")
	}
}

// half is a Redis Cluster of which a node does not answer for one key.
type half struct{ key string }

func (half) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (half) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h half) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		for _, c := range commands {
			if slices.Contains(c.Args(), any(h.key)) {
				err = errors.New("CLUSTERDOWN")
				c.SetErr(err)
			}
		}
		return err
	}
}

// The results of nodes that answer are found when another node has not answered for a minute.
func TestResults_FindWithHalfOfRedis(t *testing.T) {
	t.Parallel()
	client, lost, there := newRedis(t), uuid.New(), results()["sent"]
	r := pendingresults.New(client)
	if err := r.Store(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	client.AddHook(half{"email-gateway:result:" + lost.String()})
	tokens := []uuid.UUID{lost, there.Token}
	if _, err := r.Find(t.Context(), tokens); err == nil {
		t.Error("the attempts do not wait for the other node")
	}
	r.SilentFor(time.Minute)
	if found, err := r.Find(t.Context(), tokens); len(found) != 1 || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

// A value that no worker has written is no result.
func TestResults_ForeignValue(t *testing.T) {
	t.Parallel()
	client := newRedis(t)
	change := func(kind string, change func(map[string]any)) string {
		token := results()[kind]
		if err := pendingresults.New(client).Store(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		key := "email-gateway:result:" + token.Token.String()
		var fields map[string]any
		if err := json.Unmarshal([]byte(client.GetDel(t.Context(), key).Val()), &fields); err != nil {
			t.Fatal(err)
		}
		change(fields)
		changed, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return string(changed)
	}
	set := func(kind, field string, value any) string {
		return change(kind, func(fields map[string]any) { fields[field] = value })
	}
	for name, value := range map[string]string{
		"empty": "", "no JSON": "SENT", "null": "null", "no object": "[]",
		"further field": set("sent", "guard", "feedback"), "no id": set("sent", "id", uuid.Nil), "no message id": set("sent", "sesMessageId", ""),
		"no final status": set("sent", "status", "PENDING"), "cancelled": set("sent", "status", "CANCELLED"), "no events": set("failed", "events", []any{}),
		"event of another status": set("sent", "status", "FAILED"), "failed without a dead letter": set("failed", "deadLetter", false),
		"many attempts": set("retry", "addAttempts", 5), "attempts of a failure": set("failed", "addAttempts", -1), "many throttles": set("retry", "addThrottles", 9),
		"long delay": set("retry", "delay", 1000*time.Hour), "negative delay": set("retry", "delay", -1), "unflagged": set("retry", "outcomeUnknown", true),
		"large": set("failed", "errorReason", strings.Repeat("x", 20<<10)),
	} {
		token := uuid.New()
		key := "email-gateway:result:" + token.String()
		if err := client.Set(t.Context(), key, value, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if found, err := pendingresults.New(client).Find(t.Context(), []uuid.UUID{token}); len(found) != 0 || err != nil {
			t.Errorf("%s: %v, %v", name, found, err)
		}
		client.Del(t.Context(), key)
	}
	token := uuid.New()
	key := "email-gateway:result:" + token.String()
	client.LPush(t.Context(), key, "x")
	defer client.Del(t.Context(), key)
	if found, err := pendingresults.New(client).Find(t.Context(), []uuid.UUID{token}); len(found) != 0 || err != nil {
		t.Errorf("a list: %v, %v", found, err)
	}
}

// An attempt waits for Redis for one more lease at most.
func TestResults_FindWithoutRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
		_ = client.Close()
		r := pendingresults.New(client)
		fails := func() bool {
			found, err := r.Find(t.Context(), []uuid.UUID{uuid.New()})
			if len(found) > 0 {
				t.Errorf("found %v", found)
			}
			return err != nil
		}
		pass := func(d time.Duration) { _ = service.Pause(t.Context(), d) }
		for range 2 { // the second time after a pause without attempts
			for start := time.Now(); fails(); pass(5 * time.Second) {
				if time.Since(start) > time.Minute {
					t.Fatal("attempts wait for more than a minute")
				}
			}
			if fails() {
				t.Error("the wait has begun again")
			}
			pass(10 * time.Minute)
			if !fails() {
				t.Error("an attempt does not wait for Redis")
			}
			pass(10 * time.Minute)
		}
	})
}
