package asynqueue

import "github.com/redis/go-redis/v9"

// Intercept lets a test act between two commands of the publisher.
func (p *Publisher) Intercept(hook redis.Hook) { p.redis.AddHook(hook) }
