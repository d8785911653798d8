package mailmerge

import (
	"fmt"
	"strconv"
)

// Codes of template faults. They are shown to tenants: add new ones, never rename.
const (
	CodeNotText        = "TEMPLATE_NOT_TEXT"
	CodeUnclosed       = "FIELD_UNCLOSED"
	CodeEmpty          = "FIELD_EMPTY"
	CodeName           = "FIELD_NAME"
	CodeNameLength     = "FIELD_NAME_LENGTH"
	CodeUnsupported    = "FIELD_UNSUPPORTED"
	CodeDefault        = "FIELD_DEFAULT"
	CodeInTag          = "FIELD_IN_TAG"
	CodeInName         = "FIELD_IN_ATTRIBUTE_NAME"
	CodeUnquoted       = "FIELD_UNQUOTED"
	CodeInAttribute    = "FIELD_IN_ATTRIBUTE"
	CodeInHandler      = "FIELD_IN_HANDLER"
	CodeInSrcdoc       = "FIELD_IN_SRCDOC"
	CodeInAddress      = "FIELD_IN_ADDRESS"
	CodeInScript       = "FIELD_IN_SCRIPT"
	CodeInStyle        = "FIELD_IN_STYLE"
	CodeInRawText      = "FIELD_IN_RAW_TEXT"
	CodeInComment      = "FIELD_IN_COMMENT"
	CodeInDoctype      = "FIELD_IN_DOCTYPE"
	CodeAfterReference = "FIELD_AFTER_REFERENCE"
	CodeAmbiguous      = "MARKUP_AMBIGUOUS"
	CodeSubjectControl = "SUBJECT_CONTROL"
	CodeSubjectLength  = "SUBJECT_LENGTH"
	// Of templates with sections.
	CodeSection      = "SECTION_UNBALANCED"
	CodeSectionPlace = "SECTION_PLACE"
	CodeSectionDepth = "SECTION_DEPTH"
	CodeTooManyTags  = "TEMPLATE_TOO_MANY_TAGS"
)

// Fault is an error of a template with its position.
type Fault struct {
	Code   string // stable code
	Line   int    // from 1
	Column int    // from 1, in characters
	Detail string // one sentence for the user
}

// Error joins code, position and detail.
func (f *Fault) Error() string {
	return fmt.Sprintf("%s at line %d, column %d: %s", f.Code, f.Line, f.Column, f.Detail)
}

// Codes of value faults.
const (
	CodeValueNotText = "VALUE_NOT_TEXT"
	CodeValueControl = "VALUE_CONTROL"
	CodeValueAddress = "VALUE_ADDRESS"
	CodeValueHost    = "VALUE_HOST"
	CodeValuePath    = "VALUE_PATH"
)

// ValueFault names the field whose value cannot be rendered. It never quotes the value, so it may
// be logged.
type ValueFault struct {
	Code   string // stable code; CodeSubjectLength too
	Field  string // as written in the template; empty for the result as a whole
	Detail string // continues "the value"
}

// Error joins code, field and detail.
func (f *ValueFault) Error() string {
	if f.Field == "" {
		return f.Code + ": " + f.Detail
	}
	return f.Code + " of field " + strconv.Quote(f.Field) + ": the value " + f.Detail
}
