package ctl_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"email-gateway/api/internal/ctl"
	"email-gateway/shared/store/storetest"
)

// terminal opens a pseudo-terminal with the given columns; shown returns what was written
// once tty is closed.
func terminal(t *testing.T, columns uint16) (tty *os.File, shown func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("open a pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&all, master) // fails when the other side is closed
	}()
	return tty, func() string {
		_ = tty.Close()
		<-read
		return all.String()
	}
}

// On a terminal the progress is one line that is redrawn, and erased before the output is
// printed.
func TestMailingCreate_OnATerminal(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	tty, shown := terminal(t, 100)
	environ := []string{"TERM=xterm"}
	for name, value := range tenant.env {
		environ = append(environ, name+"="+value)
	}
	var stdout bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- ctl.Program{Environ: environ, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: tty}.Run(t.Context(), []string{
			"mailing", "create", "--file", file(t, "clientes.csv", people), "--subject", "Olá", "--html", "<p>{{nome}}</p>", "--watch",
		})
	}()
	storetest.WaitFor(t, d, `SELECT count(*) = 1 FROM mailings`)
	exec(t, d, `UPDATE mailings SET status = 'SENDING', sent = 1, rate = 7, processed_lines = 2, counted_at = now()`)
	exec(t, d, `SELECT pg_sleep(2.5)`) // two polls
	exec(t, d, `UPDATE mailings SET status = 'COMPLETED', sent = 2, completed_at = now()`)
	code, text := <-ended, shown()
	if code != ctl.ExitOK || !strings.HasPrefix(stdout.String(), "Mailing ") || !strings.Contains(stdout.String(), " is COMPLETED\n") {
		t.Errorf("exit code %d, %s", code, stdout.String())
	}
	if !strings.Contains(text, " is accepted: 2 lines accepted, 1 invalid, 1 duplicate.") ||
		!regexp.MustCompile(`\rSending  50 %  \[=+> +\]  1 of 2, 7/s`).MatchString(text) || !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("drew %q", text)
	}
}
