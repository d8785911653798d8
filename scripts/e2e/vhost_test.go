package e2e_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"email-gateway/scripts/local/programs"
	"email-gateway/shared/servertest"
)

// vhosts are virtual hosts of the RabbitMQ server that all tests share. They are created together: one call of
// rabbitmqctl takes two seconds of CPU time, and a server for each test four times that.
type vhosts struct {
	mu    sync.Mutex
	names []string // not taken yet
	made  []string
}

var hosts vhosts

// brokerURL returns the URL of a virtual host for this test. A test that stops or configures the server needs
// servertest.Start instead.
func brokerURL(t *testing.T) string {
	t.Helper()
	broker, _ := broker(t)
	return broker
}

// broker is brokerURL with a function that runs a command of rabbitmqctl on the virtual host.
func broker(t *testing.T) (brokerURL string, ctl func(arguments ...string)) {
	t.Helper()
	shared, err := url.Parse(os.Getenv("RABBITMQ_URL"))
	if err != nil {
		t.Fatalf("RABBITMQ_URL: %v", err)
	}
	name, err := hosts.take()
	if err != nil { // the environment names a broker that services.sh does not run
		t.Logf("a broker of the test's own: %v", err)
		own := servertest.Start(t, "rabbitmq")
		return own.URL, func(arguments ...string) { own.RabbitMQCtl(arguments...) }
	}
	shared.Path = "/" + name
	return shared.String(), func(arguments ...string) {
		t.Helper()
		if err := rabbitMQCtl(append(arguments, "--vhost", name)...); err != nil {
			t.Fatal(err)
		}
	}
}

func (v *vhosts) take() (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.names) == 0 {
		names := make([]string, 20) // as many as there are tests that take one
		for i := range names {
			names[i] = "e2e-" + uuid.NewString()
		}
		if err := onBroker(`rabbit_vhost:add(V, <<"e2e">>), rabbit_auth_backend_internal:set_permissions(<<"gateway">>, V, <<".*">>, <<".*">>, <<".*">>, <<"e2e">>)`, names); err != nil {
			return "", err
		}
		v.names, v.made = names, append(v.made, names...)
	}
	name := v.names[0]
	v.names = v.names[1:]
	return name, nil
}

// remove deletes all of them.
func (v *vhosts) remove() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.made) == 0 {
		return nil
	}
	return onBroker(`rabbit_vhost:delete(V, <<"e2e">>)`, v.made)
}

// onBroker evaluates an Erlang expression for each of the names, bound to V.
func onBroker(expression string, names []string) error {
	binaries := make([]string, len(names))
	for i, name := range names {
		binaries[i] = `<<"` + name + `">>`
	}
	return rabbitMQCtl("eval", "[begin "+expression+" end || V <- ["+strings.Join(binaries, ", ")+"]], ok.")
}

func rabbitMQCtl(arguments ...string) error {
	_, err := programs.Output(context.Background(), os.Environ(), filepath.Join(rootDir, "scripts", "services.sh"), append([]string{"rabbitmqctl"}, arguments...)...)
	return err
}
