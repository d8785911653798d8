package rules

import "slices"

// Fault is one thing that is wrong with a request. Field is its path: "subject",
// "cc[2]", "recipient.cpfCnpj", "headers.X-Foo".
type Fault struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// MaxFaults is where explaining stops: a body of 2 MiB has room for a hundred
// thousand mistakes, and nobody reads past the first few.
const MaxFaults = 100

// Codes that more than one rule ends in.
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
	codeTooMany        = "TOO_MANY"
)

// Faults collects what is wrong with a request: one fault per field, but for those that were
// added by AddEach.
type Faults []Fault

// Add notes a fault, unless the field has one already or there are MaxFaults.
func (f *Faults) Add(field, code, message string) {
	if !f.Has(field) && len(*f) < MaxFaults {
		*f = append(*f, Fault{Field: field, Code: code, Message: message})
	}
}

// AddEach notes one of several faults of a field, unless there are MaxFaults.
func (f *Faults) AddEach(field, code, message string) {
	if len(*f) < MaxFaults {
		*f = append(*f, Fault{Field: field, Code: code, Message: message})
	}
}

// Has says whether one of the fields has a fault.
func (f Faults) Has(fields ...string) bool {
	return slices.ContainsFunc(f, func(fault Fault) bool { return slices.Contains(fields, fault.Field) })
}
