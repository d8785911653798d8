package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Group returns a command that only holds others. Cobra's default for an unknown subcommand
// is the help text and exit code 0.
func Group(name, short, long, example string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			message := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
			if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
				message += ": did you mean " + strings.Join(similar, " or ") + "?"
			}
			return errors.New(message)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprint(cmd.ErrOrStderr(), cmd.Long, "\n\n", cmd.UsageString(), "\n")
			return Usagef("%s needs a command", cmd.CommandPath())
		},
		SuggestionsMinimumDistance: 2,
	}
}
