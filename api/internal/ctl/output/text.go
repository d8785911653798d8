package output

import "strings"

// CodeAndReason joins a code and its reason.
func CodeAndReason(code, reason string) string {
	reason = strings.TrimRight(reason, ". ")
	if code == "" || reason == "" {
		return code + reason
	}
	return code + ": " + reason
}

// Optional returns the value of a nullable column, "" for NULL.
func Optional(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
