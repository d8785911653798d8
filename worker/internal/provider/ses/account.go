package ses

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
)

// Account is what SES allows this account at the moment.
type Account struct {
	// MaxSendRate is in recipients per second.
	MaxSendRate float64
	// Max24HourSend is the quota of any 24 hours, -1 when there is none.
	Max24HourSend   float64
	SentLast24Hours float64
	// SendingEnabled is false while sending is paused for the whole account.
	SendingEnabled bool
	// ProductionAccess is false in the sandbox, where only verified recipients get mail.
	ProductionAccess bool
}

// Refusal is the code of why the account accepts no email at all, "" if it does: the code
// of the answer that an email would get.
func (a Account) Refusal() string {
	switch {
	case !a.SendingEnabled:
		return codeAccountPaused
	case a.Max24HourSend > 0 && a.SentLast24Hours >= a.Max24HourSend:
		return codeDailyQuota
	}
	return ""
}

var errNoQuota = errors.New("get ses account: answer without a send quota")

// Account asks SES for the account's limits. AWS answers about one such question a
// second for the whole account, so ask once a minute and keep the answer.
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
		return Account{}, errNoQuota
	}
	return Account{
		MaxSendRate:      quota.MaxSendRate,
		Max24HourSend:    quota.Max24HourSend,
		SentLast24Hours:  quota.SentLast24Hours,
		SendingEnabled:   output.SendingEnabled,
		ProductionAccess: output.ProductionAccessEnabled,
	}, nil
}

// Reach says whether SES works, as far as a question that sends no email can tell. An account that
// may not be asked for its limits, or an emulator that does not know the question (501 too), is
// reached.
func (s *Sender) Reach(ctx context.Context) error {
	_, err := s.Account(ctx)
	var answered *awshttp.ResponseError
	if errors.Is(err, errNoQuota) {
		return nil
	}
	if errors.As(err, &answered) {
		if status := answered.HTTPStatusCode(); status == http.StatusNotImplemented || status > 0 && status < http.StatusInternalServerError {
			return nil
		}
	}
	return err
}
