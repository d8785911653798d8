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
			b.tell(false, now)
		}
	}
	fail(breakAfter - 1)
	b.tell(true, now)
	fail(breakAfter - 1)
	if b.open(now) {
		t.Error("an answer in between does not count")
	}
	fail(1)
	if !b.open(now) || !b.open(now.Add(breakFor-time.Second)) || b.open(now.Add(breakFor)) {
		t.Error("DNS is not left alone for 30 s")
	}
	now = now.Add(breakFor)
	fail(1)
	if !b.open(now.Add(breakFor - time.Second)) {
		t.Error("one failure more and it is left alone again")
	}
	now = now.Add(breakFor)
	b.tell(true, now)
	fail(breakAfter - 1)
	if b.open(now) {
		t.Error("an answer does not begin anew")
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	var c cache
	now := time.Now()
	no := Verdict{Detail: "no"}
	c.put("a.example", no, now.Add(invalidFor))
	if v, ok := c.get("a.example", now.Add(invalidFor-time.Second)); !ok || v != no {
		t.Error("forgotten too early")
	}
	if _, ok := c.get("a.example", now.Add(invalidFor)); ok || len(c.verdicts) != 0 {
		t.Error("kept too long")
	}
	for i := range cacheSize + 10 {
		c.put(fmt.Sprint(i), no, now.Add(validFor))
	}
	if len(c.verdicts) > cacheSize {
		t.Errorf("%d verdicts", len(c.verdicts))
	}
	if _, ok := c.get(fmt.Sprint(cacheSize+9), now); !ok {
		t.Error("the newest is forgotten")
	}
}
