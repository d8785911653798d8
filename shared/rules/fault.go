package rules

import "slices"

// Fault is one error of a request. Field is its path: "subject", "cc[2]", "recipient.cpfCnpj",
// "headers.X-Foo".
type Fault struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// MaxFaults is the maximum number of reported faults: a body of 2 MiB has room for a hundred
// thousand.
const MaxFaults = 100

// Codes used by more than one rule.
const (
	CodeRequired       = "REQUIRED"
	CodeTooLong        = "TOO_LONG"
	CodeNotAllowed     = "NOT_ALLOWED"
	CodeOutOfRange     = "OUT_OF_RANGE"
	CodeMismatch       = "MISMATCH"
	CodeBadCharacter   = "BAD_CHARACTER"
	CodeDuplicateField = "DUPLICATE_FIELD"
	CodeInvalidCPFCNPJ = "INVALID_CPF_CNPJ"
	CodeInvalidTime    = "INVALID_TIMESTAMP"
	CodeInvalidHeader  = "INVALID_HEADER_VALUE"
	CodeTooMany        = "TOO_MANY"
)

// LeaveOut is the fault of a blank value where it would select a default that the client may not mean.
const LeaveOut = "must not be blank: leave it out"

// Faults collects the errors of a request: one per field, except for those added by AddEach.
type Faults []Fault

// Add adds a fault, unless the field has one already or MaxFaults is reached.
func (f *Faults) Add(field, code, message string) {
	if !f.Has(field) && len(*f) < MaxFaults {
		*f = append(*f, Fault{Field: field, Code: code, Message: message})
	}
}

// AddEach adds one of several faults of a field, unless MaxFaults is reached.
func (f *Faults) AddEach(field, code, message string) {
	if len(*f) < MaxFaults {
		*f = append(*f, Fault{Field: field, Code: code, Message: message})
	}
}

// Has reports whether one of the fields has a fault.
func (f Faults) Has(fields ...string) bool {
	return slices.ContainsFunc(f, func(fault Fault) bool { return slices.Contains(fields, fault.Field) })
}
