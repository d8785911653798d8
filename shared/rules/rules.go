// Package rules validates single fields of a request and formats the faults. The api's handlers use it for HTTP
// requests, and package draft for all emails.
//
// The tags on a struct name its rules: those of go-playground/validator, and those of text.go, header.go and this file.
package rules

import (
	"errors"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-playground/validator/v10"

	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
)

// Rule is a tag for texts: a check and the error code of a rejected text.
type Rule struct {
	Code  string
	Check func(value string) error // nil = valid
}

// Rules validates structs by their tags. It is safe for concurrent use.
type Rules struct {
	validate *validator.Validate
	own      map[string]Rule
}

// ownRules are the tags that the validator does not have.
func ownRules() map[string]Rule {
	return map[string]Rule{
		"address":     {email.CodeInvalidEmail, mailbox.Diagnose},
		"mailbox":     {email.CodeInvalidEmail, func(v string) error { _, err := mailbox.Parse(v); return err }},
		"line":        {CodeBadCharacter, checkLine},
		"printable":   {CodeBadCharacter, checkPrintable},
		"name":        {"INVALID_NAME", checkName},
		"requestid":   {CodeBadCharacter, CheckRequestID},
		"headername":  {"INVALID_HEADER_NAME", checkHeaderName},
		"unreserved":  {"RESERVED_HEADER", checkUnreserved},
		"headervalue": {CodeInvalidHeader, checkHeaderValue},
		"cpfcnpj":     {CodeInvalidCPFCNPJ, func(v string) error { _, err := email.ParseTaxID(v); return err }},
		"taxidhash":   {"INVALID_HASH", checkTaxIDHash},
		"id":          {"INVALID_ID", func(v string) error { _, err := ParseID(v); return err }},
		"timestamp":   {CodeInvalidTime, func(v string) error { _, err := ParseTime(v); return err }},
	}
}

// New returns Rules with additional tags; nil = none. It fails if the validator rejects a tag.
func New(more map[string]Rule) (*Rules, error) {
	r := &Rules{validate: validator.New(validator.WithRequiredStructEnabled()), own: ownRules()}
	maps.Copy(r.own, more)
	r.validate.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name
	})
	var errs []error
	for tag, rule := range r.own {
		errs = append(errs, r.validate.RegisterValidation(tag, func(f validator.FieldLevel) bool {
			return rule.Check(f.Field().String()) == nil
		}))
	}
	errs = append(errs, r.validate.RegisterValidation("bytes", func(f validator.FieldLevel) bool {
		most, err := strconv.Atoi(f.Param())
		return err == nil && f.Field().Len() <= most
	}))
	// An element "" counts as omitted.
	errs = append(errs, r.validate.RegisterValidation("entries", func(f validator.FieldLevel) bool {
		most, err := strconv.Atoi(f.Param())
		n := 0
		for i := range f.Field().Len() {
			if f.Field().Index(i).String() != "" {
				n++
			}
		}
		return err == nil && n <= most
	}))
	return r, errors.Join(errs...)
}

// Check adds the faults of request, a pointer to a struct, to the known ones. A field has at most one fault: a field
// that is empty because of a wrong type is not also reported as missing.
func (r *Rules) Check(request any, known Faults) Faults {
	err := r.validate.Struct(request)
	var found validator.ValidationErrors
	if !errors.As(err, &found) {
		return known
	}
	for _, f := range found {
		if len(known) >= MaxFaults {
			break // an explanation may take as long as the check
		}
		code, message := r.explain(f)
		known.Add(fieldPath(f.Namespace()), code, message)
	}
	return known
}

// CheckOne validates a single value; the code is "" if it is valid.
func (r *Rules) CheckOne(value, tags string) (code, message string) {
	var found validator.ValidationErrors
	if errors.As(r.validate.Var(value, tags), &found) {
		return r.explain(found[0])
	}
	return "", ""
}

// fieldPath turns the validator's "Email.headers[X-Foo]" into "headers.X-Foo" and leaves "cc[2]"
// and "recipients[3].email" unchanged.
func fieldPath(namespace string) string {
	_, path, _ := strings.Cut(namespace, ".")
	before, key, found := strings.Cut(path, "[")
	key, last := strings.CutSuffix(key, "]")
	if _, err := strconv.Atoi(key); !found || !last || err == nil {
		return path
	}
	return before + "." + key
}

// explain returns the code of a fault and a message that says what would be valid.
func (r *Rules) explain(f validator.FieldError) (code, message string) {
	if own, ok := r.own[f.Tag()]; ok {
		text, _ := f.Value().(string)
		if err := own.Check(text); err != nil {
			return own.Code, err.Error() + placeOf(err, f)
		}
	}
	switch f.Tag() {
	case "required":
		return CodeRequired, "is required"
	case "oneof":
		return CodeNotAllowed, "must be one of: " + strings.ReplaceAll(f.Param(), " ", ", ")
	case "bytes":
		return CodeTooLong, "must be at most " + f.Param() + " bytes of UTF-8"
	case "entries":
		return CodeTooMany, "must have at most " + f.Param() + " entries"
	case "min", "max":
		return explainBound(f)
	}
	return "INVALID", "does not satisfy " + f.Tag()
}

// placeOf names the field for the rest of the value, if the value has an address with a name or several addresses.
func placeOf(err error, f validator.FieldError) string {
	path := fieldPath(f.Namespace())
	parent, last := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, last = path[:i+1], path[i+1:]
	}
	switch named, several := errors.Is(err, mailbox.ErrNamed), errors.Is(err, mailbox.ErrSeveral); {
	case named && path == "to":
		return ": put the name into recipient.nome"
	case named && last == "email":
		return ": put the name into " + parent + "nome"
	case several && path == "to":
		return ": one recipient per email; cc and bcc take up to 5 more"
	case several && strings.HasSuffix(path, "]"):
		return ": make each an entry of the array"
	}
	return ""
}

func explainBound(f validator.FieldError) (code, message string) {
	least := f.Tag() == "min"
	switch {
	case f.Kind() == reflect.Int && least:
		return CodeOutOfRange, "must be at least " + f.Param()
	case f.Kind() == reflect.Int:
		return CodeOutOfRange, "must be at most " + f.Param()
	case f.Kind() == reflect.String && least:
		return CodeRequired, "must not be empty"
	case f.Kind() == reflect.String:
		return CodeTooLong, "must have at most " + f.Param() + " characters"
	case least:
		return CodeRequired, "must not be empty"
	default:
		return CodeTooMany, "must have at most " + f.Param() + " entries"
	}
}
