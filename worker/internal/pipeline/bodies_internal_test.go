package pipeline

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/htmlcheck"
	mailingstore "email-gateway/shared/store/mailing"
)

// countedTemplates returns the same templates for every mailing, and counts.
type countedTemplates struct {
	made   mailingstore.Templates
	reads  atomic.Int64
	during func()
}

func (c *countedTemplates) MailingTemplates(context.Context, uuid.UUID) (mailingstore.Templates, error) {
	c.reads.Add(1)
	if c.during != nil {
		c.during()
	}
	return c.made, nil
}

func tagged(tags int) mailingstore.Templates {
	return mailingstore.Templates{
		HTML: "<p>" + strings.Repeat("{{a}}", tags) + "</p>", Text: strings.Repeat("{{a}}", tags), CheckerVersion: int(htmlcheck.Version),
		Fields: []string{"a"},
	}
}

// Emails of one mailing that miss the cache at the same time read and parse the templates once.
func TestBodies_ConcurrentMisses(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	templates := &countedTemplates{made: tagged(1)}
	templates.during = func() {
		for asked.Load() < 64 { // all are here before the first read ends
			runtime.Gosched()
		}
	}
	b, mailing := newBodies(templates), uuid.New()
	var running sync.WaitGroup
	for range 64 {
		running.Go(func() {
			asked.Add(1)
			if made, err := b.body(t.Context(), uuid.New(), mailing); err != nil || made.unusable != nil {
				t.Errorf("%+v, %v", made, err)
			}
		})
	}
	running.Wait()
	if n := templates.reads.Load(); n != 1 {
		t.Errorf("read %d times", n)
	}
}

// As many mailings as a company may have running at once, each with large templates, take turns without being parsed
// for each email. More of them stay within the memory, and do not evict another company's.
func TestBodies_ManyMailings(t *testing.T) {
	t.Parallel()
	templates := &countedTemplates{made: tagged(6400)}
	b := newBodies(templates)
	of := func(company, mailing uuid.UUID) *body {
		t.Helper()
		made, err := b.body(t.Context(), company, mailing)
		if err != nil || made.unusable != nil {
			t.Fatalf("%+v, %v", made, err)
		}
		return made
	}
	quiet, single := uuid.New(), uuid.New()
	of(quiet, single)
	company := uuid.New()
	mailings := make([]uuid.UUID, 20)
	for i := range mailings {
		mailings[i] = uuid.New()
	}
	for range 10 {
		for _, mailing := range mailings {
			of(company, mailing)
		}
	}
	if n := templates.reads.Load(); n != 1+20 {
		t.Errorf("the templates of 20 mailings were read %d times", n-1)
	}
	for range 100 {
		of(company, uuid.New())
	}
	of(quiet, single)
	if n := templates.reads.Load(); n != 1+20+100 {
		t.Errorf("another company's templates were evicted")
	}
}

// memory is not less than what the templates take.
func TestBind_Memory(t *testing.T) { // not parallel: it measures the heap
	for name, templates := range map[string]mailingstore.Templates{"many tags": tagged(6400), "long": {HTML: "<p>" + strings.Repeat("x", 400_000) + "</p>", CheckerVersion: int(htmlcheck.Version)}} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		made := make([]*body, 50)
		for i := range made {
			fresh := templates
			fresh.HTML, fresh.Text = strings.Clone(fresh.HTML), strings.Clone(fresh.Text)
			made[i] = bind(fresh)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		took := int(after.HeapAlloc-before.HeapAlloc) / len(made) //nolint:gosec // some MiB
		if counted := made[0].memory; took > counted*5/4 || took < counted/3 {
			t.Errorf("%s: %d bytes are counted, %d are used", name, counted, took)
		}
		runtime.KeepAlive(made)
	}
}
