package asynqueue

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Keeps says how Redis keeps what stands on its queues.
type Keeps struct {
	Policy     string `json:"policy"`     // maxmemory-policy: all but noeviction throw tasks away when memory is full
	AppendOnly bool   `json:"appendOnly"` // a restart forgets nothing but the last second
}

// Keeps asks Redis for its settings, in a cluster every master: the worst of them counts.
func (p *Publisher) Keeps(ctx context.Context) (Keeps, error) {
	cluster, several := p.redis.(*redis.ClusterClient)
	if !several {
		return keeps(ctx, p.redis)
	}
	var mu sync.Mutex
	all := Keeps{Policy: noEviction, AppendOnly: true}
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		k, err := keeps(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		if k.Policy != noEviction {
			all.Policy = k.Policy
		}
		all.AppendOnly = all.AppendOnly && k.AppendOnly
		return err
	})
	return all, err
}

// noEviction is the policy that keeps every task.
const noEviction = "noeviction"

// keeps reads INFO, which also works where CONFIG is forbidden, as by those who rent Redis out.
func keeps(ctx context.Context, server redis.Cmdable) (k Keeps, err error) {
	text, err := server.Info(ctx).Result()
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
