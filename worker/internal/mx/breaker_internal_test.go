package mx

import (
	"fmt"
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	var b breaker
	now := time.Now()
	fail := func(times int) {
		for range times {
			b.record(false, now)
		}
	}
	fail(breakAfter - 1)
	b.record(true, now)
	fail(breakAfter - 1)
	if b.open(now) {
		t.Error("an answer in between does not reset the count")
	}
	fail(1)
	if !b.open(now) || !b.open(now.Add(breakFor-time.Second)) || b.open(now.Add(breakFor)) {
		t.Error("the breaker is not open for 30 s")
	}
	now = now.Add(breakFor)
	fail(1)
	if !b.open(now.Add(breakFor - time.Second)) {
		t.Error("one more failure does not open the breaker again")
	}
	now = now.Add(breakFor)
	b.record(true, now)
	fail(breakAfter - 1)
	if b.open(now) {
		t.Error("an answer does not reset the count")
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	var c cache
	now := time.Now()
	no := Result{Detail: "no"}
	c.put("a.example", no, now.Add(invalidFor))
	if v, ok := c.get("a.example", now.Add(invalidFor-time.Second)); !ok || v != no {
		t.Error("expired too early")
	}
	if _, ok := c.get("a.example", now.Add(invalidFor)); ok || len(c.results) != 0 {
		t.Error("kept too long")
	}
	for i := range cacheSize + 10 {
		c.put(fmt.Sprint(i), no, now.Add(validFor))
	}
	if len(c.results) > cacheSize {
		t.Errorf("%d results", len(c.results))
	}
	if _, ok := c.get(fmt.Sprint(cacheSize+9), now); !ok {
		t.Error("the newest result is not cached")
	}
}
