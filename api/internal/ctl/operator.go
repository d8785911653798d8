package ctl

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// operatorIdentity returns the operator's identity with the reason of a change.
func (c *control) operatorIdentity(reason string) (store.Operator, error) {
	name := cmp.Or(strings.TrimSpace(c.operator), strings.TrimSpace(c.Getenv("GATEWAY_OPERATOR")), c.Login)
	switch {
	case name == "":
		return store.Operator{}, usagef("the operator is unknown: give --operator NAME or set GATEWAY_OPERATOR; the name is recorded in the audit log")
	case email.HasControl(name) || utf8.RuneCountInString(name) > email.MaxFieldLen:
		return store.Operator{}, usagef("--operator must be one line of at most %d characters", email.MaxFieldLen)
	}
	reason = strings.TrimSpace(reason)
	if email.HasControl(reason) || utf8.RuneCountInString(reason) > maxReason {
		return store.Operator{}, usagef("--reason must be one line of at most %d characters", maxReason)
	}
	return store.Operator{Name: name, Reason: reason}, nil
}

// maxReason limits a reason (characters).
const maxReason = 500

// auditReasonFlag adds the flag --reason, required if must is set.
func auditReasonFlag(cmd *cobra.Command, reason *string, must bool) *cobra.Command {
	cmd.Flags().StringVar(reason, "reason", "", "`WHY`, recorded in the audit log")
	if must {
		required(cmd, "reason")
	}
	return cmd
}

// operatorWithReason is operatorIdentity with a mandatory reason.
func (c *control) operatorWithReason(reason string) (store.Operator, error) {
	if strings.TrimSpace(reason) == "" {
		return store.Operator{}, usagef("--reason must not be empty: it is recorded in the audit log")
	}
	return c.operatorIdentity(reason)
}
