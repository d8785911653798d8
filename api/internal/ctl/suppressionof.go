package ctl

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/store"
)

// suppressionChoice is which suppressions are meant, and whose.
type suppressionChoice struct {
	company, address, reason, note string
	limit                          int
	reveal                         bool
}

// companyFlag is for an operator: a tenant has but one.
func (c *control) companyFlag(cmd *cobra.Command, company *string) {
	cmd.Flags().StringVar(company, "company", "", "an operator's choice: the `COMPANY`, by id or exact name")
	c.completeCompanyFlag(cmd)
}

// check reads what operators and tenants give alike.
func (o *suppressionChoice) check() error { return checkReason(&o.reason) }

// ofTenant refuses what only an operator can ask for.
func (o *suppressionChoice) ofTenant() error {
	if o.company != "" || o.reveal {
		return usagef("--company and --reveal are an operator's: a tenant has his own company's suppressions")
	}
	return o.check()
}

// ofCompany finds the company that an operator means.
func (o *suppressionChoice) ofCompany(ctx context.Context, s *store.Store) (store.Company, error) {
	if err := o.check(); err != nil {
		return store.Company{}, err
	}
	if o.company == "" {
		return store.Company{}, usagef("--company is missing: of which company? `gatewayctl company list` shows all")
	}
	return findCompany(ctx, s, o.company)
}

// plainAddress is an address as it is stored.
func plainAddress(given string) (string, error) {
	m, err := mailbox.Parse(given)
	if err != nil || m.Name != "" {
		return "", usagef("%q is not an email address", given)
	}
	return m.Address, nil
}

// viewSuppression shows a row; masked hides whom it is about.
func viewSuppression(s store.Suppression, masked bool) suppressionView {
	v := suppressionView{Address: s.Address, Reason: string(s.Reason), MailingID: s.MailingID, Note: text(s.Note), CreatedAt: s.CreatedAt.UTC()}
	if masked {
		v.Address = email.MaskAddress(v.Address)
	}
	return v
}

func (c *control) listSuppressionsOf(ctx context.Context, s *store.Store, o *suppressionChoice) (answer, error) {
	if err := checkLimit(o.limit); err != nil {
		return nil, err
	}
	company, err := o.ofCompany(ctx, s)
	if err != nil {
		return nil, err
	}
	filter := store.SuppressionFilter{Reason: store.SuppressionReason(o.reason), Limit: o.limit + 1} // one more tells whether there is one
	if o.address != "" {
		if filter.Address, err = plainAddress(o.address); err != nil {
			return nil, err
		}
	}
	if err := c.revealed(ctx, s, o.reveal, "suppression", company.ID, ""); err != nil {
		return nil, err
	}
	found, err := s.Suppressions(ctx, company.ID, filter)
	list := suppressionList{Suppressions: []suppressionView{}, More: len(found) > o.limit}
	for _, row := range found[:min(len(found), o.limit)] {
		list.Suppressions = append(list.Suppressions, viewSuppression(row, !o.reveal && o.address == ""))
	}
	return list, err
}

// suppressFor keeps a company's emails from an address, on an operator's word.
func (c *control) suppressFor(ctx context.Context, s *store.Store, o *suppressionChoice, given string) (answer, error) {
	by, err := c.who(o.note)
	switch {
	case err != nil:
		return nil, err
	case utf8.RuneCountInString(by.Reason) > email.MaxFieldLen:
		return nil, usagef("--note must have at most %d characters", email.MaxFieldLen)
	}
	address, err := plainAddress(given)
	if err != nil {
		return nil, err
	}
	company, err := o.ofCompany(ctx, s)
	if err != nil {
		return nil, err
	}
	n := store.Suppression{Address: address, Reason: store.SuppressionReason(o.reason)}
	if by.Reason != "" {
		n.Note = &by.Reason
	}
	if err := s.SuppressAs(ctx, by, company.ID, n); err != nil {
		return nil, err
	}
	stands, err := s.Suppressions(ctx, company.ID, store.SuppressionFilter{Address: address, Reason: n.Reason, Limit: 1})
	if err == nil && len(stands) == 0 {
		err = errors.New("it was taken back in this very moment")
	}
	if err != nil {
		return nil, err
	}
	return suppressed{viewSuppression(stands[0], false), company.Name}, nil
}

// unsuppressFor takes a suppression back, on an operator's word.
func (c *control) unsuppressFor(ctx context.Context, s *store.Store, o *suppressionChoice, given string) (answer, error) {
	if o.note == "" {
		return nil, usagef("--note must say why: whoever looks at it later will want to know")
	}
	by, err := c.who(o.note)
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
	err = s.UnsuppressAs(ctx, by, company.ID, address, store.SuppressionReason(o.reason))
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("the address is not suppressed for that reason: `gatewayctl suppression list --company %s --address %s` shows for which it is",
			shellWord(company.Name), shellWord(address))
	}
	return unsuppressed{address, o.reason}, err
}
