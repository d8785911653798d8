package asynqueue

import (
	"context"
	"fmt"
	"strings"
)

// Keeps says how Redis keeps what stands on its queues.
type Keeps struct {
	Policy     string `json:"policy"`     // maxmemory-policy: all but noeviction throw tasks away when memory is full
	AppendOnly bool   `json:"appendOnly"` // a restart forgets nothing but the last second
}

// Keeps asks Redis for its settings. INFO tells them also where CONFIG is forbidden, as by
// those who rent Redis out.
func (p *Publisher) Keeps(ctx context.Context) (k Keeps, err error) {
	text, err := p.redis.Info(ctx).Result()
	if err != nil {
		return k, fmt.Errorf("ask redis for its settings: %w", err)
	}
	for line := range strings.Lines(text) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "maxmemory_policy":
			k.Policy = value
		case "aof_enabled":
			k.AppendOnly = value == "1"
		}
	}
	return k, nil
}
