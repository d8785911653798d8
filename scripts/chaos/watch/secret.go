package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/chaos/load"
)

// maxComplaints keeps a report readable.
const maxComplaints = 20

// search looks for addresses and numbers in clear.
func (w *Watch) search(ctx context.Context, _ int) {
	w.searchRedis(ctx)
	w.searchBroker()
	w.searchMetrics(ctx)
}

func (w *Watch) leak(format string, args ...any) {
	if len(w.leaks) < maxComplaints {
		w.leaks = append(w.leaks, fmt.Sprintf(format, args...))
	}
}

// addressesIn and numbersIn tell where text has them.
func (w *Watch) addressesIn(text []byte, where string) {
	w.found(load.FindAddress(text), text, where)
}

func (w *Watch) numbersIn(text []byte, where string) { w.found(load.FindTaxID(text), text, where) }

func (w *Watch) found(at []int, text []byte, where string) {
	if at != nil {
		w.leak("%s has %q", where, text[max(0, at[0]-60):min(len(text), at[1]+60)])
	}
}

const (
	// keysPerLook are the keys of Redis that are looked at each time, valuesPerKey how much
	// of each.
	keysPerLook  = 200
	valuesPerKey = 50
)

// searchRedis looks at some of the keys, others each time. An address may stand in
// the payload of a task and nowhere else, a number nowhere.
func (w *Watch) searchRedis(ctx context.Context) {
	keys, next, err := w.redis.Scan(ctx, w.cursor, "*", keysPerLook).Result()
	if err != nil {
		w.cursor = 0 // it may be another Redis when it is back
		return
	}
	w.cursor = next
	for _, key := range keys {
		value, err := w.valueOf(ctx, key)
		if err != nil {
			return
		}
		w.Seen.Keys++
		where := "key " + key + " of Redis"
		w.numbersIn(value, where)
		if carriesPayloads(key) {
			value = withoutPayloads(value)
		}
		w.addressesIn(append(value, key...), where)
	}
}

// valueOf is what stands under a key, all in one.
func (w *Watch) valueOf(ctx context.Context, key string) ([]byte, error) {
	kind, err := w.redis.Type(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	var parts []string
	switch kind {
	case "string":
		var text string
		if text, err = w.redis.Get(ctx, key).Result(); errors.Is(err, redis.Nil) {
			err = nil // gone since
		}
		parts = []string{text}
	case "hash":
		fields, err := w.redis.HGetAll(ctx, key).Result()
		if err != nil {
			return nil, err
		}
		for name, value := range fields {
			parts = append(parts, name, value)
		}
	case "list":
		parts, err = w.redis.LRange(ctx, key, 0, valuesPerKey).Result()
	case "zset":
		parts, err = w.redis.ZRange(ctx, key, 0, valuesPerKey).Result()
	case "set":
		parts, _, err = w.redis.SScan(ctx, key, 0, "", valuesPerKey).Result()
	}
	return []byte(strings.Join(parts, "\n")), err
}

// carriesPayloads says that a task stands under the key, or that it is asynq's list of
// what a worker has in its hands, which has a copy of each payload for its dashboard.
func carriesPayloads(key string) bool {
	return strings.HasPrefix(key, "asynq:workers:{") || strings.HasPrefix(key, "asynq:{") && strings.Contains(key, "}:t:")
}

// withoutPayloads leaves out the JSON objects that are tasks' payloads.
func withoutPayloads(value []byte) []byte {
	var rest []byte
	for {
		from := bytes.Index(value, []byte(`{"`))
		if from < 0 {
			return append(rest, value...)
		}
		decoder := json.NewDecoder(bytes.NewReader(value[from:]))
		var payload json.RawMessage
		if decoder.Decode(&payload) != nil {
			return append(rest, value...)
		}
		rest = append(rest, value[:from]...)
		value = value[from+int(decoder.InputOffset()):]
	}
}

// searchMetrics reads what the programs count.
func (w *Watch) searchMetrics(ctx context.Context) {
	for _, p := range w.stage.Programs {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Metrics+"/metrics", nil)
		if err != nil {
			continue
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			continue // it is down, or frozen
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close() // only read from
		if err != nil || answer.StatusCode != http.StatusOK {
			continue
		}
		w.Seen.Metrics++
		where := "/metrics of " + p.Name
		w.numbersIn(text, where)
		w.addressesIn(text, where)
	}
}
