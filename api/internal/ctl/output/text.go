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
func Optional[T ~string](s *T) string {
	if s == nil {
		return ""
	}
	return string(*s)
}

// ShellWord quotes s as one word of a shell command, so that printed commands can be pasted.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-@:/", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
