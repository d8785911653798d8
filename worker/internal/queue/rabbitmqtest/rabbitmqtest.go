// Package rabbitmqtest gives a test its place in RabbitMQ: a prefix of its own on the
// shared server, or a private server that it may stop, kill and fill. Tests use it; no
// program does.
package rabbitmqtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Shared returns the URL of the server that all tests use, and a prefix for this test's
// queues and exchanges, which Delete removes. It needs RABBITMQ_URL; without it the test
// fails.
func Shared(tb testing.TB) (url, prefix string) {
	tb.Helper()
	url = os.Getenv("RABBITMQ_URL")
	if url == "" {
		tb.Fatal("RABBITMQ_URL is not set: run the tests through ./scripts/test.sh")
	}
	return url, "test-" + uuid.NewString() + "."
}

// Delete removes queues and exchanges when the test ends.
func Delete(tb testing.TB, url string, queues, exchanges []string) {
	tb.Cleanup(func() {
		channel := Channel(tb, url)
		for _, name := range queues {
			if _, err := channel.QueueDelete(name, false, false, false); err != nil {
				tb.Errorf("clean up rabbitmq: %v", err)
			}
		}
		for _, name := range exchanges {
			if err := channel.ExchangeDelete(name, false, false); err != nil {
				tb.Errorf("clean up rabbitmq: %v", err)
			}
		}
	})
}

// Channel opens a connection of the test's own and a channel on it, closed when the test
// ends.
func Channel(tb testing.TB, url string) *amqp.Channel {
	tb.Helper()
	connection, err := amqp.Dial(url)
	if err != nil {
		tb.Fatalf("connect to rabbitmq: %v", err)
	}
	tb.Cleanup(func() { _ = connection.Close() })
	channel, err := connection.Channel()
	if err != nil {
		tb.Fatalf("open channel: %v", err)
	}
	return channel
}

// Server is a RabbitMQ of the test's own. It takes some seconds to start.
type Server struct {
	URL string

	tb  testing.TB
	dir string
}

// Start starts a server on a free port of loopback, and destroys it with its data when
// the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{tb: tb, dir: tb.TempDir()}
	tb.Cleanup(func() { s.script("destroy") })
	s.Start()
	_, quoted, _ := strings.Cut(s.script("env"), "=")
	s.URL = strings.Trim(strings.TrimSpace(quoted), "'")
	return s
}

// Start starts the server again, with the data and on the port it had.
func (s *Server) Start() { s.tb.Helper(); s.script("start") }

// Stop ends the server in good order.
func (s *Server) Stop() { s.tb.Helper(); s.script("stop") }

// Kill ends the server as a crash would.
func (s *Server) Kill() { s.tb.Helper(); s.script("kill") }

// Freeze stops the server's process: connections stay open and nothing answers.
func (s *Server) Freeze() { s.tb.Helper(); s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.tb.Helper(); s.signal(syscall.SIGCONT) }

// FillMemory makes the server believe that its memory is full: it takes no messages.
func (s *Server) FillMemory() { s.tb.Helper(); s.control("set_vm_memory_high_watermark", "0.00001") }

// FreeMemory takes the alarm back.
func (s *Server) FreeMemory() { s.tb.Helper(); s.control("set_vm_memory_high_watermark", "0.9") }

// control runs rabbitmqctl, which finds the server by its name and its port mapper and
// shows its cookie.
func (s *Server) control(arguments ...string) {
	s.tb.Helper()
	home := filepath.Join(s.dir, "rabbitmq")
	cookie := strings.TrimSpace(s.read("rabbitmq", ".erlang.cookie"))
	run := exec.CommandContext(context.Background(), "/usr/lib/rabbitmq/bin/rabbitmqctl", append([]string{
		"--node", "gateway@localhost", "--erlang-cookie", cookie,
	}, arguments...)...)
	run.Env = append(os.Environ(), "HOME="+s.tb.TempDir(), "ERL_EPMD_PORT="+s.port("RABBITMQ_EPMD_PORT"),
		"RABBITMQ_CONF_ENV_FILE="+filepath.Join(home, "none"))
	if out, err := run.CombinedOutput(); err != nil {
		s.tb.Fatalf("rabbitmqctl %s: %v\n%s", arguments[0], err, out)
	}
}

// port is one of the server's ports, by the name under which services.sh remembers it.
func (s *Server) port(name string) string {
	s.tb.Helper()
	for line := range strings.Lines(s.read("ports")) {
		if found, port, _ := strings.Cut(strings.TrimSpace(line), "="); found == name {
			return port
		}
	}
	s.tb.Fatalf("services.sh remembers no %s", name)
	return ""
}
