package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store/storetest"
)

// The api crashes while it handles twenty requests. Every request that got a 202 has one row; repeating a request
// with the same Idempotency-Key results in one row and one email, whatever the first result was.
func TestCrashPoints_Accept(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n = 20
	for round, point := range []crashpoint.Point{crashpoint.AcceptBegun, crashpoint.AcceptCommitted} {
		t.Run(string(point), func(t *testing.T) {
			s.api.stop()
			s.api = s.startCrashing("api", point, n/2, nil)
			request := func(i int) (id string, err error) {
				key := map[string]string{"Idempotency-Key": fmt.Sprintf("%s-%d", point, i)}
				status, answer, err := s.try(http.MethodPost, "/v1/email/send", newBody(fmt.Sprintf("cliente%d@example.com", i), nil), key)
				if err != nil {
					return "", err
				}
				var accepted struct{ OutboxID string }
				if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted {
					return "", fmt.Errorf("%d %s", status, answer)
				}
				return accepted.OutboxID, nil
			}
			first := make([]string, n) // "" = no answer
			var group sync.WaitGroup
			for i := range n {
				group.Go(func() { first[i], _ = request(i) })
			}
			group.Wait()
			s.api.awaitCrash(point)

			answered := slices.DeleteFunc(slices.Clone(first), func(id string) bool { return id == "" })
			rows := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox") - round*n
			switch {
			case point == crashpoint.AcceptBegun && rows >= n:
				t.Errorf("%d rows: the request that died had written one", rows)
			case point == crashpoint.AcceptCommitted && rows <= len(answered):
				t.Errorf("%d rows for %d answers: the request that died had not written one", rows, len(answered))
			}
			s.api = startProgram(s.t, "api", s.env)
			for i, id := range first {
				again, err := request(i)
				if err != nil || id != "" && again != id {
					t.Errorf("repeated: %s, %v; the first answer was %q", again, err, id)
				}
				s.email(again)
			}
			if rows := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox"); rows != (round+1)*n {
				t.Errorf("%d rows, want %d", rows, (round+1)*n)
			}
		})
	}
	s.awaitAll(2*n, "SENT")
	s.sentOnce(2 * n)
}
