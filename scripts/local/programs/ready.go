package programs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"email-gateway/shared/service"
)

// StartTimeout is enough for a program to start, on a busy machine.
const StartTimeout = 30 * time.Second

// Await waits until the program is ready. It fails if the program exits before, or after the timeout.
func (p *Program) Await(ctx context.Context, timeout time.Duration, ready func(context.Context) error) error {
	var exit error
	err := Await(ctx, timeout, func(ctx context.Context) error {
		exited := p.hasExited() // before ready: it may have been ready, and then exited
		err := ready(ctx)
		if err != nil && exited {
			exit = fmt.Errorf("%s exited during startup with %s; see %s", p.Name, p.cmd.ProcessState, p.log)
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w; see %s", p.Name, err, p.log)
	}
	return exit
}

// Await calls ready until it returns nil. After the timeout it returns the last error.
func Await(ctx context.Context, timeout time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil || service.Pause(ctx, 20*time.Millisecond) != nil {
			return err
		}
	}
}

// Listens is ready when the address accepts connections.
func Listens(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// Responds is ready when the response from the URL is 200.
func Responds(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	}
}
