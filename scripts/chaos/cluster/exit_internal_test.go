package cluster

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"email-gateway/scripts/local"
	"email-gateway/scripts/local/programs"
	"email-gateway/shared/waittest"
)

// TestMain is also a program that listens, and exits after its second connection.
func TestMain(m *testing.M) {
	if addr := os.Getenv("LISTENING_ADDR"); addr != "" {
		if listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr); err == nil {
			_, _ = listener.Accept()
			_, _ = listener.Accept()
		}
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// An unexpected exit is recorded with whether the program had listened.
func TestUnexpectedExits(t *testing.T) {
	t.Parallel()
	for name, listens := range map[string]bool{"listened": true, "did not listen": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, err := local.FreeAddress()
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			c := &Cluster{cfg: Config{Dir: dir}}
			c.supervise, c.end = context.WithCancel(t.Context())
			p := newProgram(c, "listening-1", "listening", addr)
			if !listens {
				p.env["LISTENING_ADDR"] = "nowhere"
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(self, c.bin("listening")); err != nil {
				t.Fatal(err)
			}
			p.mu.Lock()
			err = p.launch()
			p.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			if listens { // the second connection: the supervisor's is the other
				if err := programs.Await(t.Context(), waittest.Limit, programs.Listens(addr)); err != nil {
					t.Fatal(err)
				}
			}
			waittest.Until(t, "the program has exited", func() bool { return len(p.UnexpectedExits()) > 0 })
			c.end()
			if got := p.UnexpectedExits()[0]; got.Listened != listens {
				t.Errorf("%+v", got)
			}
		})
	}
}
