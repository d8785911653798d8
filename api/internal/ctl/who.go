package ctl

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// who is the operator who types, with a reason for what is to be done.
func (c *control) who(reason string) (store.Operator, error) {
	name := cmp.Or(strings.TrimSpace(c.operator), strings.TrimSpace(c.Getenv("GATEWAY_OPERATOR")), c.Login)
	switch {
	case name == "":
		return store.Operator{}, usagef("who are you? The audit wants to know: --operator NAME, or the variable GATEWAY_OPERATOR")
	case email.HasControl(name) || utf8.RuneCountInString(name) > email.MaxFieldLen:
		return store.Operator{}, usagef("--operator must be a line of at most %d characters", email.MaxFieldLen)
	}
	reason = strings.TrimSpace(reason)
	if email.HasControl(reason) || utf8.RuneCountInString(reason) > maxReason {
		return store.Operator{}, usagef("--reason must be a line of at most %d characters", maxReason)
	}
	return store.Operator{Name: name, Reason: reason}, nil
}

// maxReason is longer than any reason that somebody reads (characters).
const maxReason = 500

// because gives a command the flag that says why. Where must, it has to be given: others
// will want to know, and so will whoever takes it back.
func because(cmd *cobra.Command, reason *string, must bool) *cobra.Command {
	cmd.Flags().StringVar(reason, "reason", "", "`WHY`, for the audit and for whoever looks at it later")
	if must {
		required(cmd, "reason")
	}
	return cmd
}

// whoAndWhy is who for what must have a reason.
func (c *control) whoAndWhy(reason string) (store.Operator, error) {
	if strings.TrimSpace(reason) == "" {
		return store.Operator{}, usagef("--reason must say why: whoever looks at it later will want to know")
	}
	return c.who(reason)
}
