package pgurl_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lib/pq"

	"email-gateway/schema/pgurl"
)

// With the result of Parse the driver uses every host of the URL.
func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		url   string
		first string
		port  uint16
		more  []string
	}{
		{"postgres://u:p@a:6432/db?sslmode=disable", "a", 6432, nil},
		{"postgresql://a/db", "a", 5432, nil},
		{"postgres://u:p@a:1,b:2/db?sslmode=disable&target_session_attrs=read-write", "a", 1, []string{"b:2"}},
		{"postgres://u:p@a:1,b/db", "a", 1, []string{"b:5432"}},
		{"postgres://u:p@a,b:7,c/db", "a", 5432, []string{"b:7", "c:5432"}},
		{"postgres://u:p@[::1]:1,[::2]/db", "::1", 1, []string{"::2:5432"}},
		{"postgres://u:a%2Cb%40@a,b/db", "a", 5432, []string{"b:5432"}},
	}
	for _, tt := range tests {
		u, err := pgurl.Parse(tt.url)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		c, err := pq.NewConfig(u.String())
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		var more []string
		for _, m := range c.Multi {
			more = append(more, strings.Join([]string{m.Host, itoa(m.Port)}, ":"))
		}
		if c.Host != tt.first || c.Port != tt.port || !slices.Equal(more, tt.more) || c.Database != "db" {
			t.Errorf("%s: %s %d %v %s", tt.url, c.Host, c.Port, more, c.Database)
		}
		if strings.Contains(tt.url, "u:") && (c.User != "u" || c.Password == "") {
			t.Errorf("%s: user %q", tt.url, c.User)
		}
		if hosts := pgurl.Hosts(u); hosts[0] != tt.first || len(hosts) != len(tt.more)+1 {
			t.Errorf("%s: hosts %v", tt.url, hosts)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "u:secret", "mysql://u:secret@h/db", "postgres://u:secret/x@h/db", "postgres://u:secret@a,/db",
		"postgres://u:secret@a:1:2,b/db", "postgres://u:secret@a,b/db?host=c", "postgres://u:secret%@a,b/db",
	} {
		if u, err := pgurl.Parse(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v", text, u, err)
		}
	}
}

func itoa(port uint16) string { return strconv.Itoa(int(port)) }
