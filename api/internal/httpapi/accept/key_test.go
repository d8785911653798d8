package accept_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/strictjson"
)

// A key has a hash for every body, also for one without a canonical form: idempotency_keys requires one.
func TestKeyOf_EveryBodyHasASum(t *testing.T) {
	t.Parallel()
	sum := func(body string) []byte {
		document, err := strictjson.Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		key, err := accept.KeyOf(http.Header{"Idempotency-Key": {"k"}}, "POST /x", document, []byte("secret"))
		if err != nil {
			t.Fatal(err)
		}
		return key.Sum
	}
	deep := `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`
	seen := map[string]string{}
	for _, body := range []string{`{}`, `{"a":"\ud83d"}`, `{"a":"\ude00"}`, `{"\ud83d":1}`, deep} {
		got := sum(body)
		if len(got) != 32 || !bytes.Equal(got, sum(body)) {
			t.Errorf("%.40s: %x", body, got)
		}
		if other, ok := seen[string(got)]; ok {
			t.Errorf("%.40s and %.40s have the same sum", body, other)
		}
		seen[string(got)] = body
	}
}
