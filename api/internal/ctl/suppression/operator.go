package suppression

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/store"
	suppressionstore "email-gateway/shared/store/suppression"
	tenantstore "email-gateway/shared/store/tenant"
)

// suppressionChoice holds the flags of the suppression commands.
type suppressionChoice struct {
	company, address, reason, note string
	limit                          int
	reveal                         bool
}

// companyFlag adds the flag --company for operators.
func companyFlag(c *command.Invocation, cmd *cobra.Command, company *string) {
	cmd.Flags().StringVar(company, "company", "", "operators only: the `COMPANY` (id or exact name)")
	operator.CompleteCompanyFlag(c, cmd)
}

// check validates the flags that operators and tenants share.
func (o *suppressionChoice) check() error { return checkReason(&o.reason) }

// ofTenant rejects flags for operators.
func (o *suppressionChoice) ofTenant() error {
	if o.company != "" || o.reveal {
		return command.Usagef("--company and --reveal are only for operators: tenants list only their own suppressions, and addresses are not masked")
	}
	return o.check()
}

// ofCompany finds the company that an operator names.
func (o *suppressionChoice) ofCompany(ctx context.Context, s *store.Store) (tenantstore.Company, error) {
	if err := o.check(); err != nil {
		return tenantstore.Company{}, err
	}
	if o.company == "" {
		return tenantstore.Company{}, command.Usagef("--company is required: run `gatewayctl company list` to see all companies")
	}
	return operator.FindCompany(ctx, s, o.company)
}

// plainAddress returns the address as stored.
func plainAddress(given string) (string, error) {
	m, err := mailbox.Parse(given)
	if err != nil || m.Name != "" {
		return "", command.Usagef("%q is not an email address", given)
	}
	return m.Address, nil
}

// viewSuppression converts a row; masked hides the address.
func viewSuppression(s suppressionstore.Suppression, masked bool) suppressionView {
	v := suppressionView{Address: s.Address, Reason: string(s.Reason), MailingID: s.MailingID, Note: output.Optional(s.Note), CreatedAt: s.CreatedAt.UTC()}
	if masked {
		v.Address = email.MaskAddress(v.Address)
	}
	return v
}

func listSuppressionsOf(ctx context.Context, c *command.Invocation, s *store.Store, o *suppressionChoice) (output.Result, error) {
	if err := command.CheckLimit(o.limit); err != nil {
		return nil, err
	}
	company, err := o.ofCompany(ctx, s)
	if err != nil {
		return nil, err
	}
	filter := suppressionstore.Filter{Reason: suppressionstore.Reason(o.reason), Limit: o.limit + 1} // one more tells whether there is one
	if o.address != "" {
		if filter.Address, err = plainAddress(o.address); err != nil {
			return nil, err
		}
	}
	if err := operator.RecordReveal(ctx, c, s, o.reveal, "suppression", company.ID, ""); err != nil {
		return nil, err
	}
	found, err := s.Suppressions(ctx, company.ID, filter)
	list := suppressionList{Suppressions: []suppressionView{}, More: len(found) > o.limit}
	for _, row := range found[:min(len(found), o.limit)] {
		list.Suppressions = append(list.Suppressions, viewSuppression(row, !o.reveal && o.address == ""))
	}
	return list, err
}

// suppressFor suppresses an address for a company, as an operator.
func suppressFor(ctx context.Context, c *command.Invocation, s *store.Store, o *suppressionChoice, given string) (output.Result, error) {
	by, err := operator.Identity(c, o.note)
	switch {
	case err != nil:
		return nil, err
	case utf8.RuneCountInString(by.Reason) > email.MaxFieldLen:
		return nil, command.Usagef("--note must have at most %d characters", email.MaxFieldLen)
	}
	address, err := plainAddress(given)
	if err != nil {
		return nil, err
	}
	company, err := o.ofCompany(ctx, s)
	if err != nil {
		return nil, err
	}
	n := suppressionstore.Suppression{Address: address, Reason: suppressionstore.Reason(o.reason)}
	if by.Reason != "" {
		n.Note = &by.Reason
	}
	added, err := s.SuppressAs(ctx, by, company.ID, n)
	if err != nil {
		return nil, err
	}
	return suppressed{viewSuppression(added, false), company.Name}, nil
}

// unsuppressFor removes a suppression, as an operator.
func unsuppressFor(ctx context.Context, c *command.Invocation, s *store.Store, o *suppressionChoice, given string) (output.Result, error) {
	if o.note == "" {
		return nil, command.Usagef("--note is required: it is recorded in the audit log")
	}
	by, err := operator.Identity(c, o.note)
	if err != nil {
		return nil, err
	}
	address, err := plainAddress(given)
	if err != nil {
		return nil, err
	}
	company, err := o.ofCompany(ctx, s)
	if err != nil {
		return nil, err
	}
	err = s.UnsuppressAs(ctx, by, company.ID, address, suppressionstore.Reason(o.reason))
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("the address is not suppressed for that reason: run `gatewayctl suppression list --company %s --address %s` to see its suppressions",
			output.ShellWord(company.Name), output.ShellWord(address))
	}
	return unsuppressed{address, o.reason}, err
}
