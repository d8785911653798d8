package httpapi

import (
	"errors"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/slots"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/recipient"
)

// Every statement about a company's rows waits for a slot of the company. The store behind it is nil: a
// method that calls it fails the test.
func TestFairStore_HasEveryMethod(t *testing.T) {
	t.Parallel()
	company := uuid.New()
	f := newFairStore(nil, slots.New())
	for range slots.StatementsPerCompany {
		if _, err := f.Enter(t.Context(), company); err != nil {
			t.Fatal(err)
		}
	}
	for range slots.LookUpsPerCompany {
		if _, err := f.ForLookUp().Enter(t.Context(), company); err != nil {
			t.Fatal(err)
		}
	}
	f.Wait = time.Millisecond
	// For these the store itself limits the waiting for locks.
	exempt := []string{"AdvanceAll", "ChangeEmail"}
	called := 0
	methods := reflect.TypeFor[Store]()
	for i := range methods.NumMethod() {
		m := methods.Method(i)
		if m.Type.NumIn() < 2 || m.Type.In(1) != reflect.TypeFor[uuid.UUID]() && m.Name != "AcceptRecipients" || slices.Contains(exempt, m.Name) ||
			slices.Contains(withoutCompany, m.Name) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			called++
			arguments := []reflect.Value{reflect.ValueOf(t.Context())}
			for n := 1; n < m.Type.NumIn(); n++ {
				arguments = append(arguments, reflect.Zero(m.Type.In(n)))
			}
			arguments[1] = reflect.ValueOf(company)
			if m.Name == "AcceptRecipients" {
				arguments[1] = reflect.ValueOf(recipient.NewRecipients{CompanyID: company})
			}
			results := reflect.ValueOf(f).MethodByName(m.Name).Call(arguments)
			last := results[len(results)-1].Interface()
			if lines, is := last.(iter.Seq2[mailingstore.RejectedLine, error]); is {
				for _, err := range lines {
					last = err
				}
			}
			if err, is := last.(error); !is || !errors.Is(err, slots.ErrCompanyBusy) {
				t.Errorf("got %v", last)
			}
		})
	}
	if _, err := f.timelineOf(t.Context(), company, uuid.New()); !errors.Is(err, slots.ErrCompanyBusy) {
		t.Errorf("timeline: %v", err)
	}
	if called < 20 {
		t.Errorf("%d methods were called, want at least 20", called)
	}
	f.Wait = slots.Wait
	if leave, err := f.Enter(t.Context(), uuid.New()); err != nil {
		t.Errorf("another company: %v", err)
	} else {
		leave()
	}
}

// If all slots are taken, a company with few requests gets BUSY and not an error about its own limit.
func TestFairStore_AllSlotsTaken(t *testing.T) {
	t.Parallel()
	f := newFairStore(nil, slots.New())
	for i := range slots.Statements {
		if _, err := f.Enter(t.Context(), uuid.UUID{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	f.Wait = time.Millisecond
	_, err := f.FindEmail(t.Context(), uuid.New(), uuid.New())
	if p := problem.Of(err); p.Status != http.StatusServiceUnavailable || p.Code != "BUSY" || p.RetryAfter == 0 {
		t.Errorf("%v: %+v", err, p)
	}
}

// withoutCompany are methods whose first id is not a company's: they access a single row.
var withoutCompany = []string{"Exists", "MailingExists", "Timeline"}
