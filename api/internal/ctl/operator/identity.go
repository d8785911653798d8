package operator

import (
	"cmp"
	"context"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
)

// Identity returns the operator's identity with the reason of a change.
func Identity(c *command.Invocation, reason string) (audit.Operator, error) {
	name := cmp.Or(strings.TrimSpace(c.Operator), strings.TrimSpace(c.Getenv("GATEWAY_OPERATOR")), c.Login)
	switch {
	case name == "":
		return audit.Operator{}, command.Usagef("the operator is unknown: give --operator NAME or set GATEWAY_OPERATOR; the name is recorded in the audit log")
	case email.HasControl(name) || utf8.RuneCountInString(name) > email.MaxFieldLen:
		return audit.Operator{}, command.Usagef("--operator must be one line of at most %d characters", email.MaxFieldLen)
	}
	reason = strings.TrimSpace(reason)
	if email.HasControl(reason) || utf8.RuneCountInString(reason) > maxReason {
		return audit.Operator{}, command.Usagef("--reason must be one line of at most %d characters", maxReason)
	}
	return audit.Operator{Name: name, Reason: reason, Committed: &c.Committed}, nil
}

// maxReason limits a reason (characters).
const maxReason = 500

// ReasonFlag adds the flag --reason, required if must is set.
func ReasonFlag(cmd *cobra.Command, reason *string, must bool) *cobra.Command {
	cmd.Flags().StringVar(reason, "reason", "", "`WHY`, recorded in the audit log")
	if must {
		command.RequireFlags(cmd, "reason")
	}
	return cmd
}

// IdentityWithReason is Identity with a mandatory reason.
func IdentityWithReason(c *command.Invocation, reason string) (audit.Operator, error) {
	if strings.TrimSpace(reason) == "" {
		return audit.Operator{}, command.Usagef("--reason must not be empty: it is recorded in the audit log")
	}
	return Identity(c, reason)
}

// RecordReveal writes an audit entry if addresses are to be shown in full.
func RecordReveal(ctx context.Context, c *command.Invocation, s *store.Store, reveal bool, what string, company uuid.UUID, subject string) error {
	if !reveal {
		return nil
	}
	by, err := Identity(c, "")
	if err != nil {
		return err
	}
	return s.RecordReveal(ctx, by, what, company, subject)
}
