package httpapi

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
)

// Every statement about a company's rows waits for a slot of the company. The store behind it is nil: a
// method that calls it fails the test.
func TestFairStore_HasEveryMethod(t *testing.T) {
	t.Parallel()
	company := uuid.New()
	f := newFairStore(nil)
	for range statementSlotsPerCompany {
		if _, err := f.enter(t.Context(), company); err != nil {
			t.Fatal(err)
		}
	}
	for range lookUpSlotsPerCompany {
		if _, err := f.forLookUp().enter(t.Context(), company); err != nil {
			t.Fatal(err)
		}
	}
	f.wait = time.Millisecond
	// The store bounds those that wait for locks; ingests have places of their own.
	exempt := []string{"AdvanceAll"}
	asked := 0
	methods := reflect.TypeFor[Store]()
	for i := range methods.NumMethod() {
		m := methods.Method(i)
		if m.Type.NumIn() < 2 || m.Type.In(1) != reflect.TypeFor[uuid.UUID]() && m.Name != "AcceptRecipients" || slices.Contains(exempt, m.Name) ||
			slices.Contains(withoutCompany, m.Name) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			asked++
			arguments := []reflect.Value{reflect.ValueOf(t.Context())}
			for n := 1; n < m.Type.NumIn(); n++ {
				arguments = append(arguments, reflect.Zero(m.Type.In(n)))
			}
			arguments[1] = reflect.ValueOf(company)
			if m.Name == "AcceptRecipients" {
				arguments[1] = reflect.ValueOf(store.NewRecipients{CompanyID: company})
			}
			results := reflect.ValueOf(f).MethodByName(m.Name).Call(arguments)
			last := results[len(results)-1].Interface()
			if lines, is := last.(iter.Seq2[store.RejectedLine, error]); is {
				for _, err := range lines {
					last = err
				}
			}
			if err, is := last.(error); !is || !errors.Is(err, errCompanyBusy) {
				t.Errorf("got %v", last)
			}
		})
	}
	if _, err := f.timelineOf(t.Context(), company, uuid.New()); !errors.Is(err, errCompanyBusy) {
		t.Errorf("timeline: %v", err)
	}
	if asked < 20 {
		t.Errorf("%d methods were asked", asked)
	}
	f.wait = slotWait
	if leave, err := f.enter(t.Context(), uuid.New()); err != nil {
		t.Errorf("another company: %v", err)
	} else {
		leave()
	}
}

// A company with few requests that finds no slot is not told that it has too many.
func TestFairStore_PlacesOfAll(t *testing.T) {
	t.Parallel()
	f := newFairStore(nil)
	for i := range statementSlots {
		if _, err := f.enter(t.Context(), uuid.UUID{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	f.wait = time.Millisecond
	_, err := f.FindEmail(t.Context(), uuid.New(), uuid.New())
	if p := problemOf(err); p.status != http.StatusServiceUnavailable || p.code != "BUSY" || p.retryAfter == 0 {
		t.Errorf("%v: %+v", err, p)
	}
}

// withoutCompany are methods whose first id is not a company's: they access a single row.
var withoutCompany = []string{"Exists", "MailingExists", "Timeline", "DiscardDeadLetter"}

// A company whose large bodies are being checked leaves a slot to others.
func TestTurns_OfHTMLChecks(t *testing.T) {
	t.Parallel()
	const processors = 2
	checker, turns := newTurns(processors)
	c := &composer{html: checker, turns: turns}
	large := "<p>" + strings.Repeat("a", 64<<10)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	company, begun := uuid.New(), make(chan struct{}, processors)
	for range 8 {
		go func() {
			_ = c.checkHTML(ctx, company, large, func(ctx context.Context) error {
				begun <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
	}
	for range processors {
		<-begun
	}
	done := make(chan error, 1)
	go func() {
		done <- c.checkHTML(ctx, uuid.New(), large, func(ctx context.Context) error {
			_, err := checker.CheckAll(ctx, large, 1)
			return err
		})
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("another company waits")
	}
}

// A client that disconnects while its body waits for the check does not count as overload.
func TestTurns_ClientGone(t *testing.T) {
	t.Parallel()
	checker, turns := newTurns(1)
	c := &composer{html: checker, turns: turns}
	company := uuid.New()
	leave, err := turns.Enter(t.Context(), company)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	ctx, closeAfterResponse := context.WithCancel(t.Context())
	closeAfterResponse()
	err = c.checkHTML(ctx, company, "<p>"+strings.Repeat("a", 64<<10), func(context.Context) error { return nil })
	if p := problemOf(err); p.status != statusClientGone {
		t.Errorf("%v: %+v", err, p)
	}
}
