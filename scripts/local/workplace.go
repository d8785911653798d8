package local

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Workplace holds the directories and the report file of a program that starts its own gateway.
// Such programs share the flags root, dir and json.
type Workplace struct {
	Root string // the checkout
	Dir  string // for data and logs

	report string // a file; "" = none
	own    bool   // Open created Dir
}

// Flags adds the flags that fill w.
func (w *Workplace) Flags(flags *flag.FlagSet) {
	flags.StringVar(&w.Root, "root", "", "the checkout; by default the one around the working directory")
	flags.StringVar(&w.Dir, "dir", "", "where data and logs are kept; by default a directory that is removed when all is well")
	flags.StringVar(&w.report, "json", "", "write the report there too")
}

// Open finds the checkout and creates the directory, unless flags set them.
func (w *Workplace) Open(program string) (err error) {
	if w.Root == "" {
		if w.Root, err = Checkout(); err != nil {
			return err
		}
	}
	if w.Dir == "" {
		w.own = true
		w.Dir, err = os.MkdirTemp("", "email-gateway-"+program+"-")
	} else if w.Dir, err = filepath.Abs(w.Dir); err == nil { // programs are built below it with another working directory
		err = os.MkdirAll(w.Dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	return nil
}

// Remove deletes the directory that Open created.
func (w *Workplace) Remove() error {
	if !w.own {
		return nil
	}
	if err := os.RemoveAll(w.Dir); err != nil {
		return fmt.Errorf("remove a directory: %w", err)
	}
	return nil
}

// Write writes the report as JSON to the file set by a flag.
func (w *Workplace) Write(report any) error {
	if w.report == "" {
		return nil
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.WriteFile(w.report, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Checkout looks for go.work upwards from the working directory.
func Checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the checkout: there is no go.work around the working directory; name it with -root")
		}
		dir = filepath.Dir(dir)
	}
}

// Main runs a program until it is interrupted, and returns its exit code: 0 only if all is well.
func Main(program string, run func(ctx context.Context, out io.Writer, args []string) (ok bool, err error)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, os.Stdout, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
	}
	if err != nil || !ok {
		return 1
	}
	return 0
}
