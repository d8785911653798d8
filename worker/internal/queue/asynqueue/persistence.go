package asynqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Persistence has the settings of Redis that decide whether tasks can be lost, and its version.
type Persistence struct {
	Version    string `json:"version"`    // 7.0.15; Valkey reports the version of Redis with which it is compatible
	Policy     string `json:"policy"`     // maxmemory-policy: all except noeviction delete tasks when memory is full
	AppendOnly bool   `json:"appendOnly"` // true = a restart loses at most the last second
}

// Persistence reads the settings of Redis; in a cluster, it returns the worst value of all masters.
func (p *Publisher) Persistence(ctx context.Context) (Persistence, error) {
	cluster, several := p.redis.(*redis.ClusterClient)
	if !several {
		return persistence(ctx, p.redis)
	}
	var mu sync.Mutex
	all := Persistence{Policy: noEviction, AppendOnly: true}
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		k, err := persistence(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		if k.Policy != noEviction {
			all.Policy = k.Policy
		}
		if all.Version == "" || slices.Compare(numbers(k.Version), numbers(all.Version)) < 0 {
			all.Version = k.Version
		}
		all.AppendOnly = all.AppendOnly && k.AppendOnly
		return err
	})
	return all, err
}

// numbers are the parts of a version.
func numbers(version string) []int {
	var parts []int
	for text := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(text)
		if err != nil {
			break
		}
		parts = append(parts, n)
	}
	return parts
}

// noEviction is the policy that keeps all tasks.
const noEviction = "noeviction"

// persistence reads INFO, which is also available where CONFIG is forbidden, as in managed Redis.
func persistence(ctx context.Context, server redis.Cmdable) (k Persistence, err error) {
	text, err := server.Info(ctx).Result()
	if err != nil {
		return k, fmt.Errorf("read the settings of redis: %w", err)
	}
	for line := range strings.Lines(text) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "redis_version":
			k.Version = value
		case "maxmemory_policy":
			k.Policy = value
		case "aof_enabled":
			k.AppendOnly = value == "1"
		}
	}
	return k, nil
}
