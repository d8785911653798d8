package ses

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
)

// Account is the state and the limits of the SES account.
type Account struct {
	// MaxSendRate is in recipients per second.
	MaxSendRate float64
	// Max24HourSend is the quota per 24 hours, -1 if there is none.
	Max24HourSend   float64
	SentLast24Hours float64
	// SendingEnabled is false while sending is paused for the whole account.
	SendingEnabled bool
	// ProductionAccess is false in the sandbox, where SES only sends to verified recipients.
	ProductionAccess bool
	// Review is SES's enforcement status, unless that is HEALTHY: PROBATION while the account is under review, SHUTDOWN while AWS
	// has paused it because of a review; "" if it is healthy, or if an emulator reports none.
	Review string
}

// Restriction says what restricts the account although it may accept email, "" if nothing does.
func (a Account) Restriction() string {
	var all []string
	if !a.ProductionAccess {
		all = append(all, "SES has this account in its sandbox in this region: it sends only to verified recipients")
	}
	switch a.Review {
	case "":
	case enforcementShutdown:
		all = append(all, "AWS has paused this account for all companies after a review: its enforcement status is "+a.Review)
	default:
		all = append(all, "SES reviews this account, and may pause it for all companies: its enforcement status is "+a.Review)
	}
	return strings.Join(all, "; ")
}

// Refusal returns the error code with which the account refuses every email, "" if it accepts
// email.
func (a Account) Refusal() string {
	switch {
	case !a.SendingEnabled:
		return codeAccountPaused
	case a.Max24HourSend > 0 && a.SentLast24Hours >= a.Max24HourSend:
		return codeDailyQuota
	}
	return ""
}

// Enforcement statuses: of an account that nothing restricts, and of one that AWS has paused after a review.
const (
	enforcementHealthy  = "HEALTHY"
	enforcementShutdown = "SHUTDOWN"
)

var errNoQuota = errors.New("get ses account: response has no send quota")

// Account reads the account's limits from SES. AWS allows about one such call per second for the
// whole account: call it once a minute and cache the result.
func (s *Sender) Account(ctx context.Context) (Account, error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	output, err := s.client.GetAccount(ctx, &sesv2.GetAccountInput{})
	if err != nil {
		return Account{}, fmt.Errorf("get ses account: %w", err)
	}
	quota := output.SendQuota
	if quota == nil {
		// A rate of zero would stop all sending.
		return Account{SendingEnabled: output.SendingEnabled}, errNoQuota
	}
	account := Account{
		MaxSendRate:      quota.MaxSendRate,
		Max24HourSend:    quota.Max24HourSend,
		SentLast24Hours:  quota.SentLast24Hours,
		SendingEnabled:   output.SendingEnabled,
		ProductionAccess: output.ProductionAccessEnabled,
	}
	if status := aws.ToString(output.EnforcementStatus); status != enforcementHealthy {
		account.Review = status
	}
	s.account.Store(&account)
	return account, nil
}

// Reach returns nil if SES works, by a call that sends no email.
func (s *Sender) Reach(ctx context.Context) error { return s.Unreachable(s.Account(ctx)) }

// Unreachable returns nil if SES works, from the results of Account. SES counts as reachable also if
// the account may not read its limits, or if an emulator does not support the call (501 included).
//
// A response that SES would not give is an Unreadable failure: another server answers in its place. Emulators may give any
// response to a call that they do not support.
func (s *Sender) Unreachable(account Account, err error) error {
	var answered *awshttp.ResponseError
	status := 0
	if errors.As(err, &answered) {
		status = answered.HTTPStatusCode()
	}
	switch {
	case errors.Is(err, errNoQuota) && (s.emulator || account.SendingEnabled):
		return nil
	case errors.Is(err, errNoQuota), !s.emulator && (status/100 == 2 || status/100 == 3):
		return unreadable(err)
	case status == http.StatusNotImplemented, status > 0 && status < http.StatusInternalServerError:
		return nil
	}
	return err
}
