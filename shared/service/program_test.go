package service_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"email-gateway/shared/service"
)

func TestProgram_Run(t *testing.T) {
	t.Parallel()
	served, checked := errors.New("served"), errors.New("checked")
	p := service.Program{
		Name: "api",
		Addr: func(environ []string) (string, error) { return "", errors.Join(checked, errors.New(environ[0])) },
		Serve: func(_ context.Context, environ []string, _ io.Writer) error {
			return errors.Join(served, errors.New(environ[0]))
		},
	}
	for _, tt := range []struct {
		args []string
		want error // nil = none
		out  string
	}{
		{nil, served, ""},
		{[]string{"-healthcheck"}, checked, ""},
		{[]string{"-version"}, nil, "api " + service.Version() + "\n"},
	} {
		var out bytes.Buffer
		err := p.Run(t.Context(), tt.args, []string{"A=1"}, &out)
		if !errors.Is(err, tt.want) || tt.want != nil && !strings.Contains(err.Error(), "A=1") || out.String() != tt.out {
			t.Errorf("%v: %v, out %q; want %v, out %q", tt.args, err, out.String(), tt.want, tt.out)
		}
	}
	if err := p.Run(t.Context(), []string{"-no-such-flag"}, nil, io.Discard); err == nil || errors.Is(err, served) {
		t.Errorf("an unknown flag: %v", err)
	}
}
