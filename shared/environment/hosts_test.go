package environment_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/environment"
)

func TestSplitHosts(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{
		"":                      {""},
		"no URL, at all":        {"no URL, at all"},
		"amqp://":               {"amqp://"},
		"amqp://a":              {"amqp://a"},
		"amqp://a:1,b/v?x=1,2":  {"amqp://a:1/v?x=1,2", "amqp://b/v?x=1,2"},
		"amqp://u:p@a,b:2,c":    {"amqp://u:p@a", "amqp://u:p@b:2", "amqp://u:p@c"},
		"amqp://u:p,@q@a,b/v@w": {"amqp://u:p,@q@a/v@w", "amqp://u:p,@q@b/v@w"},
		"amqps://[::1]:5,[::2]": {"amqps://[::1]:5", "amqps://[::2]"},
		"amqp://a,/":            {"amqp://a/", "amqp:///"},
		"amqp://a,b#c,d":        {"amqp://a#c,d", "amqp://b#c,d"},
		"redis://a,b?db=1":      {"redis://a?db=1", "redis://b?db=1"},
	} {
		if diff := cmp.Diff(want, environment.SplitHosts(raw)); diff != "" {
			t.Errorf("%q: %s", raw, diff)
		}
	}
}
