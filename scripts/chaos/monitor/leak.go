package monitor

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

// maxFindings limits the length of a report.
const maxFindings = 20

// search looks for addresses and CPFs in clear text.
func (m *Monitor) search(ctx context.Context, _ int) {
	m.searchRedis(ctx)
	m.searchBroker()
	m.searchMetrics(ctx)
}

func (m *Monitor) leak(format string, args ...any) {
	if len(m.leaks) < maxFindings {
		m.leaks = append(m.leaks, fmt.Sprintf(format, args...))
	}
}

// addressesIn and numbersIn report an address or a CPF in text.
func (m *Monitor) addressesIn(text []byte, where string) {
	m.found(load.FindAddress(text), text, where)
}

func (m *Monitor) numbersIn(text []byte, where string) { m.found(load.FindTaxID(text), text, where) }

func (m *Monitor) found(at []int, text []byte, where string) {
	if at != nil {
		m.leak("%s has %q", where, text[max(0, at[0]-60):min(len(text), at[1]+60)])
	}
}

const (
	// keysPerLook is the number of Redis keys that are searched each time, valuesPerKey the number
	// of elements of each.
	keysPerLook  = 200
	valuesPerKey = 50
)

// searchRedis searches some of the keys, different ones each time. Only payloads of tasks may
// contain an address, and nothing may contain a CPF.
func (m *Monitor) searchRedis(ctx context.Context) {
	keys, next, err := m.redis.Scan(ctx, m.cursor, "*", keysPerLook).Result()
	if err != nil {
		m.cursor = 0 // Redis may have been replaced
		return
	}
	m.cursor = next
	for _, key := range keys {
		value, err := m.valueOf(ctx, key)
		if err != nil {
			return
		}
		m.Seen.Keys++
		where := "key " + key + " of Redis"
		m.numbersIn(value, where)
		if carriesPayloads(key) {
			value = withoutPayloads(value)
		}
		m.addressesIn(append(value, key...), where)
	}
}

// valueOf returns the value of a key as one text.
func (m *Monitor) valueOf(ctx context.Context, key string) ([]byte, error) {
	kind, err := m.redis.Type(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	var components []string
	switch kind {
	case "string":
		var text string
		if text, err = m.redis.Get(ctx, key).Result(); errors.Is(err, redis.Nil) {
			err = nil // deleted meanwhile
		}
		components = []string{text}
	case "hash":
		fields, err := m.redis.HGetAll(ctx, key).Result()
		if err != nil {
			return nil, err
		}
		for name, value := range fields {
			components = append(components, name, value)
		}
	case "list":
		components, err = m.redis.LRange(ctx, key, 0, valuesPerKey).Result()
	case "zset":
		components, err = m.redis.ZRange(ctx, key, 0, valuesPerKey).Result()
	case "set":
		components, _, err = m.redis.SScan(ctx, key, 0, "", valuesPerKey).Result()
	}
	return []byte(strings.Join(components, "\n")), err
}

// carriesPayloads reports whether the key is a task, or asynq's list of a worker's active tasks,
// which has a copy of each payload for its dashboard.
func carriesPayloads(key string) bool {
	return strings.HasPrefix(key, "asynq:workers:{") || strings.HasPrefix(key, "asynq:{") && strings.Contains(key, "}:t:")
}

// withoutPayloads removes the JSON objects that are tasks' payloads.
func withoutPayloads(value []byte) []byte {
	var settler []byte
	for {
		from := bytes.Index(value, []byte(`{"`))
		if from < 0 {
			return append(settler, value...)
		}
		decoder := json.NewDecoder(bytes.NewReader(value[from:]))
		var payload json.RawMessage
		if decoder.Decode(&payload) != nil {
			return append(settler, value...)
		}
		settler = append(settler, value[:from]...)
		value = value[from+int(decoder.InputOffset()):]
	}
}

// searchMetrics searches the programs' metrics.
func (m *Monitor) searchMetrics(ctx context.Context) {
	for _, p := range m.cluster.Programs {
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
		m.Seen.Metrics++
		where := "/metrics of " + p.Name
		m.numbersIn(text, where)
		m.addressesIn(text, where)
	}
}
