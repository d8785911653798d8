package template

import (
	"encoding/json"
	"fmt"

	"email-gateway/shared/mailmerge"
	"email-gateway/shared/rules"
)

// ParseSubject parses the subject of a template alone, for programs that render the bodies later.
func ParseSubject(subject string, variables []Variable) (*Template, rules.Faults) {
	var faults rules.Faults
	t := &Template{}
	outline, err := mailmerge.OutlineSubject(subject)
	if err != nil {
		addFault(&faults, "subject", err)
	} else {
		t.subject = newPart(outline)
	}
	t.declare(variables, &faults)
	return t, faults
}

// Declarations is the JSON of what variables declare, without descriptions, for Read and ReadSubject.
func Declarations(variables []Variable) (string, error) {
	bare := make([]Variable, len(variables))
	for i, v := range variables {
		bare[i] = Variable{Name: v.Name, Required: v.Required, Default: v.Default}
	}
	text, err := json.Marshal(bare)
	if err != nil {
		return "", fmt.Errorf("encode variables: %w", err)
	}
	return string(text), nil
}

// Read parses a source that was parsed before it was stored, with its declarations.
func Read(s Source, declarations string) (*Template, error) {
	if err := json.Unmarshal([]byte(declarations), &s.Variables); err != nil {
		return nil, fmt.Errorf("read variables: %w", err)
	}
	t, faults := Parse(s)
	return t, firstOf(faults)
}

// ReadSubject is Read for the subject alone.
func ReadSubject(subject, declarations string) (*Template, error) {
	var variables []Variable
	if err := json.Unmarshal([]byte(declarations), &variables); err != nil {
		return nil, fmt.Errorf("read variables: %w", err)
	}
	t, faults := ParseSubject(subject, variables)
	return t, firstOf(faults)
}

func firstOf(faults rules.Faults) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s %s: %s", faults[0].Field, faults[0].Code, faults[0].Message)
}
