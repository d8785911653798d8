package command

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"email-gateway/shared/rules"
)

// RequireFlags marks flags that must be given.
func RequireFlags(cmd *cobra.Command, flags ...string) *cobra.Command {
	for _, flag := range flags {
		_ = cmd.MarkFlagRequired(flag) // fails only for a flag that does not exist
	}
	return cmd
}

// mayBeEmpty is the annotation of flags with a meaning for an empty value.
const mayBeEmpty = "may-be-empty"

// AllowEmpty lets a flag have an empty value.
func AllowEmpty(cmd *cobra.Command, flag string) {
	_ = cmd.Flags().SetAnnotation(flag, mayBeEmpty, nil) // fails only for a flag that does not exist
}

// RefuseEmpty refuses flags with an empty value, which a script passes when its variable is not set. Such a filter would
// select everything, and such a limit would not exist.
func RefuseEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		given := func(value string) bool { return strings.TrimSpace(value) != "" }
		if _, allowed := f.Annotations[mayBeEmpty]; !allowed && !slices.ContainsFunc(values, given) && err == nil {
			err = Usagef("--%s must not be empty", f.Name)
		}
	})
	return err
}

// maxList limits --limit.
const maxList = 10_000

// LimitFlag adds the flag --limit to a list command.
func LimitFlag(cmd *cobra.Command, limit *int) *cobra.Command {
	cmd.Flags().IntVar(limit, "limit", 50, "show at most `N`")
	return cmd
}

// CheckLimit rejects a value of --limit that is out of range.
func CheckLimit(limit int) error {
	if limit < 1 || limit > maxList {
		return Usagef("--limit must be 1 to %d", maxList)
	}
	return nil
}

// CompleteFlag registers the values of a flag for shell completion.
func CompleteFlag(cmd *cobra.Command, flag string, values []string) {
	offer := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, offer) // fails only for a flag that does not exist
}

// ParseTime parses a timestamp or a duration before now.
func ParseTime(flag, text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	if t, err := rules.ParseTime(text); err == nil {
		return t, nil
	}
	return time.Time{}, Usagef("--%s %q must be a duration ago, such as 90m or 36h, or a timestamp with its zone, such as 2026-03-01T10:00:00-03:00", flag, text)
}
