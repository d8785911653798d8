package htmlcheck_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"email-gateway/shared/htmlcheck"
)

// hostileSize is a quarter of the largest size: with the race detector, bodies of that size would take a minute together.
const hostileSize = htmlcheck.MaxBytes / 4

// fill repeats what piece returns behind prefix up to hostileSize.
func fill(prefix string, piece func(i int) string) string {
	var b strings.Builder
	b.WriteString(prefix)
	for i := 0; ; i++ {
		next := piece(i)
		if b.Len()+len(next) > hostileSize {
			return b.String()
		}
		b.WriteString(next)
	}
}

func always(piece string) func(int) string {
	return func(int) string { return piece }
}

// hostileBodies are large bodies made to keep a reader busy.
// Inside svg, all readings are made.
func hostileBodies() map[string]string {
	const half = hostileSize / 2
	return map[string]string{
		"text":                  fill("", always("a")),
		"open brackets":         fill("", always("<")),
		"start tags":            fill("<svg>", always("<a>")),
		"end tags":              fill("<svg></svg>"+strings.Repeat("<div>", 480), always("</a>")),
		"misnested formatting":  fill("<svg></svg>", always("<p><b>")),
		"closed formatting":     fill("<svg></svg>", always("<b><p></b>")),
		"distinct formatting":   fill("<svg></svg>", func(i int) string { return fmt.Sprintf("<b c=%d></b><p>", i) }),
		"foster parents":        fill("<svg></svg><table>", always("x<b></b>")),
		"void elements":         fill("<svg></svg>", always("<br>")),
		"distinct attributes":   fill("<svg></svg><a ", func(i int) string { return fmt.Sprintf("%x ", i) }),
		"repeated attributes":   fill("<svg></svg><a ", always("a ")),
		"bodies":                fill("<svg></svg>"+"<body "+distinct(half)+">"+strings.Repeat("<body x>", 28)+"<p>", always("a")),
		"many bodies":           fill("<svg></svg>", func(i int) string { return fmt.Sprintf("<body %x>", i) }),
		"comments":              fill("<svg></svg>", always("<!--a-->")),
		"conditional comments":  fill("<svg></svg>", always("<!--[if a]><b><![endif]-->")),
		"hidden in comments":    fill("<svg></svg>", always("<!--[if a]><xmp></xmp>-->")),
		"nested comments":       fill("<svg></svg>", always("<!--[if a]><b>")),
		"noscript":              fill("", always("<noscript><a></noscript>")),
		"unfinished tag":        fill("<svg></svg><a title='", always("<a b=c ")),
		"references":            fill("<svg></svg><a href='", always("&#106;")),
		"srcdoc":                fill("<svg></svg>", func(i int) string { return fmt.Sprintf("<p srcdoc='<svg><i a=%d>'>", i) }),
		"nested srcdoc":         fill("<svg></svg>", always("<iframe/srcdoc=<p><iframe/srcdoc=")),
		"one large srcdoc":      fill("<svg></svg><iframe srcdoc='<svg></svg>", always("<p><b>")),
		"style elements":        fill("<svg>", always("<style>a")),
		"list of control chars": fill("<svg></svg><img srcset='", always("\x01 ")),
		"list of replacements":  fill("<svg></svg><img srcset='", always("\uFFFD ")),
		"list of letters":       fill("<svg></svg><img srcset='", always("a ")),
		"spaces in address":     fill("<svg></svg><img src='", always(" ")),
		"css letters":           fill("<svg></svg><p style='", always("u")),
		"css urls":              fill("<svg></svg><p style='", always("url(")),
		"css open comments":     fill("<svg></svg><p style='", always("e/*")),
		"css comment chain":     fill("<svg></svg><p style='", always("e/*e/**/")),
		"css url comments":      fill("<svg></svg><p style='", always("url/*url*/")),
		"css spaces":            fill("<svg></svg><p style='"+strings.Repeat("url/*", half/10)+"*/", always(" ")),
		"css escaped breaks":    fill("<svg></svg><p style='"+strings.Repeat("e/*", half/10)+"*/", always("\\\n")),
		"css spaces in address": fill("<svg></svg><p style='"+strings.Repeat("url/*", half/10)+"*/(", always(" ")),
		"css escapes":           fill("<svg></svg><p style='", always(`\75`)),
		"css behaviors":         fill("<svg></svg><p style='", always("behavior:/*")),
	}
}

func distinct(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%x ", i)
	}
	return b.String()
}

// TestHostile allows each body many times the CPU time that it takes (at most a tenth of a second without the race detector) and
// far less than quadratic work would.
func TestHostile(t *testing.T) {
	t.Parallel()
	const limit = 5 * time.Second
	for name, body := range hostileBodies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			start := threadTime(t)
			err := htmlcheck.Check(body)
			took := threadTime(t) - start
			t.Logf("%v: %v", took.Round(time.Millisecond), err)
			if took > limit {
				t.Errorf("took %v, want at most %v", took, limit)
			}
		})
	}
}

// threadTime is the CPU time of this thread, which does not grow while other processes have the processors.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	const thread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thread, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
