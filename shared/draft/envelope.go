package draft

import (
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/rules"
)

// clockTolerance is how far the clock of an api's host may be ahead: a day, as a clock that is set to local time is off by hours.
// Whether a time has passed is decided by Postgres's clock, so that such a host sends no email early; only times that have passed
// by any clock become the zero time here.
const clockTolerance = 24 * time.Hour

// SendAt parses the field sendAt, which must be within a year. The zero time, and one that has passed, mean now.
func SendAt(text string, now time.Time, f *rules.Faults) time.Time {
	at, err := rules.ParseTime(text)
	if err != nil {
		f.Add("sendAt", rules.CodeInvalidTime, err.Error())
		return time.Time{}
	}
	return Due(at, now, f)
}

// Due is SendAt for a parsed time.
func Due(at, now time.Time, f *rules.Faults) time.Time {
	switch {
	case at.After(now.AddDate(1, 0, 0)):
		f.Add("sendAt", rules.CodeOutOfRange, "must be within a year")
	case at.After(now.Add(-clockTolerance)):
		return at.UTC()
	}
	return time.Time{}
}

// TaxID parses the fields cpfCnpj and cpfCnpjHash of the object whose fields begin with path. It returns the bare
// number, or "" if there is none or it is invalid. It adds a fault to f for each invalid field.
func TaxID(number, hash *string, path string, f *rules.Faults) string {
	if number == nil || f.Has(path+"cpfCnpj") {
		return ""
	}
	bare, err := email.ParseTaxID(*number)
	if err != nil {
		f.Add(path+"cpfCnpj", rules.CodeInvalidCPFCNPJ, err.Error())
		return ""
	}
	if hash != nil && email.HashTaxID(bare, nil) != *hash {
		f.Add(path+"cpfCnpjHash", rules.CodeMismatch, "is not the SHA-256 of cpfCnpj")
	}
	return bare
}
