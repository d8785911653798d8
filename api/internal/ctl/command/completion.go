package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// CompletionTimeout limits how long a shell completion may take; then nothing is
// offered.
const CompletionTimeout = 2 * time.Second

// CompletionLimit is how many ids are offered, newest first.
const CompletionLimit = 20

// Completion returns words that begin with what is typed. A word may have a
// description after a tab.
type Completion func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// Complete returns the completion of a flag, or of the first argument if flag is not set. Errors
// are dropped: a shell completion has no place to report them.
func Complete(flag bool, words func(ctx context.Context) []string) Completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !flag {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), CompletionTimeout)
		defer cancel()
		var fit []string
		for _, word := range words(ctx) {
			if strings.HasPrefix(word, typed) {
				fit = append(fit, word)
			}
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	}
}
