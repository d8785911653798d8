package httpapi

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-playground/validator/v10"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/mailbox"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
)

// rule is a validator tag of ours: what it refuses and how that is told.
type rule struct {
	code  string
	check func(value string) error // nil = fine
}

// rules checks what can be said about a request field by field. The tags on a
// request's struct name them.
type rules struct {
	validate *validator.Validate
	own      map[string]rule
}

// ownRules are the tags that the validator does not bring itself.
func ownRules() map[string]rule {
	return map[string]rule{
		"address":     {email.CodeInvalidEmail, func(v string) error { _, err := asciiAddress(v); return err }},
		"mailbox":     {email.CodeInvalidEmail, func(v string) error { _, err := mailbox.Parse(v); return err }},
		"line":        {strictjson.CodeBadCharacter, checkLine},
		"printable":   {strictjson.CodeBadCharacter, checkPrintable},
		"headername":  {"INVALID_HEADER_NAME", checkHeaderName},
		"unreserved":  {"RESERVED_HEADER", checkUnreserved},
		"headervalue": {"INVALID_HEADER_VALUE", checkHeaderValue},
		"cpfcnpj":     {"INVALID_CPF_CNPJ", func(v string) error { _, err := email.ParseTaxID(v); return err }},
		"taxidhash":   {"INVALID_HASH", checkTaxIDHash},
		"id":          {"INVALID_ID", checkID},
		"timestamp":   {"INVALID_TIMESTAMP", func(v string) error { _, err := parseTime(v); return err }},
		"encoding":    {"NOT_ALLOWED", checkEncoding},
		"delimiter":   {"NOT_ALLOWED", func(v string) error { _, err := csvfile.ParseDelimiter(v); return err }},
		"status":      {"NOT_ALLOWED", checkStatus},
	}
}

func newRules() (*rules, error) {
	r := &rules{validate: validator.New(validator.WithRequiredStructEnabled()), own: ownRules()}
	r.validate.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name
	})
	var errs []error
	for tag, rule := range r.own {
		errs = append(errs, r.validate.RegisterValidation(tag, func(f validator.FieldLevel) bool {
			return rule.check(f.Field().String()) == nil
		}))
	}
	errs = append(errs, r.validate.RegisterValidation("bytes", func(f validator.FieldLevel) bool {
		most, err := strconv.Atoi(f.Param())
		return err == nil && f.Field().Len() <= most
	}))
	return r, errors.Join(errs...)
}

// check adds what is wrong with request, a pointer to a struct, to what is known
// already. A field has one fault at most: what a wrong type left empty is not
// missing as well.
func (r *rules) check(request any, known faults) faults {
	err := r.validate.Struct(request)
	var found validator.ValidationErrors
	if !errors.As(err, &found) {
		return known
	}
	for _, f := range found {
		code, message := r.explain(f)
		known.add(fieldPath(f.Namespace()), code, message)
	}
	return known
}

// checkOne checks a value that stands alone; the code is "" if it is fine.
func (r *rules) checkOne(value, tags string) (code, message string) {
	var found validator.ValidationErrors
	if errors.As(r.validate.Var(value, tags), &found) {
		return r.explain(found[0])
	}
	return "", ""
}

// fieldPath turns the validator's "sendRequest.headers[X-Foo]" into "headers.X-Foo"
// and leaves "cc[2]" and "recipients[3].email" as they are.
func fieldPath(namespace string) string {
	_, path, _ := strings.Cut(namespace, ".")
	before, key, found := strings.Cut(path, "[")
	key, last := strings.CutSuffix(key, "]")
	if _, err := strconv.Atoi(key); !found || !last || err == nil {
		return path
	}
	return before + "." + key
}

// explain tells what a fault is called and what would be right.
func (r *rules) explain(f validator.FieldError) (code, message string) {
	if own, ok := r.own[f.Tag()]; ok {
		text, _ := f.Value().(string)
		if err := own.check(text); err != nil {
			return own.code, err.Error()
		}
	}
	switch f.Tag() {
	case "required":
		return "REQUIRED", "is required"
	case "oneof":
		return "NOT_ALLOWED", "must be one of: " + strings.ReplaceAll(f.Param(), " ", ", ")
	case "bytes":
		return "TOO_LONG", "must be at most " + f.Param() + " bytes of UTF-8"
	case "min", "max":
		return explainBound(f)
	}
	return "INVALID", "does not satisfy " + f.Tag()
}

func explainBound(f validator.FieldError) (code, message string) {
	least := f.Tag() == "min"
	switch {
	case f.Kind() == reflect.Int && least:
		return "OUT_OF_RANGE", "must be at least " + f.Param()
	case f.Kind() == reflect.Int:
		return "OUT_OF_RANGE", "must be at most " + f.Param()
	case f.Kind() == reflect.String && least:
		return "REQUIRED", "must not be empty"
	case f.Kind() == reflect.String:
		return "TOO_LONG", "must have at most " + f.Param() + " characters"
	case least:
		return "REQUIRED", "must not be empty"
	default:
		return "TOO_MANY", "must have at most " + f.Param() + " entries"
	}
}

func checkLine(value string) error {
	if email.HasControl(value) {
		return errors.New("must not hold control characters or line ends")
	}
	return nil
}

func checkPrintable(value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errors.New("must hold printable characters only")
	}
	return nil
}

// maxHeaderName and maxHeaderValue leave room for both in SES's 996 per header.
const (
	maxHeaderName  = 126
	maxHeaderValue = 900
)

func checkHeaderName(name string) error {
	if name == "" || len(name) > maxHeaderName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) {
		return fmt.Errorf("must have a name of 1 to %d printable ASCII characters without space and colon", maxHeaderName)
	}
	return nil
}

func checkHeaderValue(value string) error {
	printable := !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
	if strings.TrimSpace(value) == "" || len(value) > maxHeaderValue || !printable {
		return fmt.Errorf("must have a value of 1 to %d printable ASCII characters", maxHeaderValue)
	}
	return nil
}

// checkUnreserved keeps a tenant from setting what the gateway or the provider sets.
func checkUnreserved(name string) error {
	switch lower := strings.ToLower(name); {
	case strings.HasPrefix(lower, "content-"), strings.HasPrefix(lower, "dkim-"), strings.HasPrefix(lower, "x-ses-"),
		strings.HasPrefix(lower, "list-unsubscribe"):
	default:
		switch lower {
		case "from", "to", "cc", "bcc", "subject", "reply-to", "date", "message-id", "mime-version", "return-path", "sender", "received":
		default:
			return nil
		}
	}
	return errors.New("is set by the gateway or the provider")
}

func checkTaxIDHash(value string) error {
	if !email.IsSHA256(value) {
		return errors.New("must be a SHA-256 in 64 lower-case hex digits")
	}
	return nil
}

// parseTime reads RFC 3339, which always has a zone.
func parseTime(value string) (time.Time, error) {
	var t time.Time
	if err := t.UnmarshalText([]byte(value)); err != nil {
		return time.Time{}, errors.New("must be a time with its zone, such as 2026-03-01T09:00:00-03:00")
	}
	return t, nil
}

func checkEncoding(value string) error {
	_, err := csvfile.ParseEncoding(value)
	return err
}

func checkStatus(value string) error {
	var names []string
	for _, s := range email.Statuses() {
		if value == string(s) {
			return nil
		}
		names = append(names, string(s))
	}
	return errors.New("must be one of: " + strings.Join(names, ", "))
}
