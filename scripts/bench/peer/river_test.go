package peer_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"email-gateway/scripts/bench/peer"
	"email-gateway/shared/store/storetest"
)

// A run ends when River has completed every job, and the next one starts with no jobs.
func TestRiver(t *testing.T) {
	t.Parallel()
	river, err := peer.Open(t.Context(), storetest.New(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer river.Close()
	for _, n := range []int{300, 100} {
		jobs := make([]peer.Email, n)
		for i := range jobs {
			jobs[i] = peer.Email{RawMessage: json.RawMessage(fmt.Sprintf(`{"to": "pessoa.%d@cliente.example"}`, i))}
		}
		took, err := river.Run(t.Context(), jobs)
		if err != nil {
			t.Fatal(err)
		}
		completed, err := river.Completed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if completed != n || took <= 0 {
			t.Errorf("%d jobs completed after %s, want %d", completed, took, n)
		}
	}
}

// A database that already has River's tables can be opened.
func TestRiver_OpensTwice(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	for range 2 {
		river, err := peer.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		river.Close()
	}
}
