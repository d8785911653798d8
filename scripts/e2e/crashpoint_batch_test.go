package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store/storetest"
)

// The api crashes at each step of a batch, whose emails take two statements. All of them are stored or none; a repeated
// request stores them once, and each repetition gets the same response.
func TestCrashPoints_Batch(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n = 5 // of 300 KiB each: three in the first statement
	points := []crashpoint.Point{crashpoint.AcceptBegun, crashpoint.BatchClaimed, crashpoint.BatchPiece, crashpoint.BatchWritten, crashpoint.AcceptCommitted}
	for round, point := range points {
		t.Run(string(point), func(t *testing.T) {
			s.api.stop()
			s.api = s.startCrashing("api", point, 1, nil)
			emails := make([]map[string]any, n)
			for i := range emails {
				emails[i] = newBody(fmt.Sprintf("cliente%d@example.com", i), func(body map[string]any) {
					delete(body, "html")
					body["text"] = strings.Repeat("Olá! ", 50<<10)
					body["aggregate"] = map[string]any{"type": "invoice", "id": fmt.Sprint(round, "-", i), "eventType": "ISSUED"}
				})
			}
			request := func() (int, []byte, error) {
				key := map[string]string{"Idempotency-Key": string(point)}
				return s.try(http.MethodPost, "/v1/email/batch", map[string]any{"emails": emails}, key)
			}
			if status, answer, err := request(); err == nil {
				t.Errorf("%d %s before the crash", status, answer)
			}
			s.api.awaitCrash(point)
			want := 0
			if point == crashpoint.AcceptCommitted {
				want = n
			}
			for _, table := range []string{"email_outbox", "outbox_aggregates"} {
				if rows := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM "+table); rows != round*n+want {
					t.Errorf("%d rows in %s, want %d", rows-round*n, table, want)
				}
			}
			s.api = startProgram(s.t, "api", s.env)
			status, first, err := request()
			var accepted struct{ Accepted, Duplicates, Rejected int }
			if err != nil || status != http.StatusAccepted || json.Unmarshal(first, &accepted) != nil || accepted.Accepted != n {
				t.Fatalf("%d %s %v", status, first, err)
			}
			if status, again, err := request(); err != nil || status != http.StatusAccepted || string(again) != string(first) {
				t.Errorf("%d %s %v, the first response was %s", status, again, err, first)
			}
			if rows := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox"); rows != (round+1)*n {
				t.Errorf("%d rows, want %d", rows, (round+1)*n)
			}
		})
	}
	s.awaitAll(len(points)*n, "SENT")
	s.sentOnce(len(points) * n)
}
