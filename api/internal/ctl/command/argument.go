package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/output"
)

// UsageError is an invalid command line that the command itself detected.
type UsageError struct{ text string }

// Error returns the message.
func (e *UsageError) Error() string { return e.text }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// ExactArgs requires exactly the named arguments.
func ExactArgs(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing", names[len(args)])
		case len(args) > len(names):
			return fmt.Errorf("%s too many", output.Plural(len(args)-len(names), "argument", "arguments"))
		}
		return nil
	}
}
