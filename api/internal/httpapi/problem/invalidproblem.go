package problem

import (
	"fmt"
	"net/http"
	"strings"

	"email-gateway/shared/rules"
)

// Invalid is a well-formed request with invalid fields. If all faults have the same code of
// those that clients act on, it becomes the code of the problem.
func Invalid(faults []rules.Fault) Problem {
	p := Problem{Status: http.StatusUnprocessableEntity, Code: codeValidationFailed, Faults: faults}
	switch first := faults[0].Code; first {
	case codeSenderNotAllowed, CodeRecipientNotFound, codeInvalidTemplate:
		p.Code = first
	}
	for _, f := range faults {
		if f.Code != p.Code {
			p.Code = codeValidationFailed
		}
	}
	p.Detail = summary(faults)
	return p
}

// summary counts the invalid fields, or the faults if all are about one field.
func summary(faults []rules.Fault) string {
	fields := map[string]bool{}
	for _, f := range faults {
		fields[f.Field] = true
	}
	switch {
	case len(faults) == 1:
		return sentence(faults[0])
	case len(faults) >= rules.MaxFaults:
		return fmt.Sprintf("%d fields are not valid; there may be more", len(fields))
	case len(fields) == 1:
		return fmt.Sprintf("%s has %d faults", faults[0].Field, len(faults))
	}
	return fmt.Sprintf("%d fields are not valid", len(fields))
}

// sentence formats a fault: the message continues after the field's name, unless it contains
// the name itself.
func sentence(f rules.Fault) string {
	if strings.HasPrefix(f.Message, "the "+f.Field+" ") {
		return f.Message
	}
	return f.Field + " " + f.Message
}
