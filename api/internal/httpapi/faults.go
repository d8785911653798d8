package httpapi

import (
	"slices"

	"email-gateway/api/internal/strictjson"
)

// faults collects what is wrong with a request, one fault per field.
type faults []strictjson.Fault

func (f *faults) add(field, code, message string) {
	if !f.has(field) && len(*f) < strictjson.MaxFaults {
		*f = append(*f, strictjson.Fault{Field: field, Code: code, Message: message})
	}
}

func (f faults) has(field string) bool {
	return slices.ContainsFunc(f, func(fault strictjson.Fault) bool { return fault.Field == field })
}
