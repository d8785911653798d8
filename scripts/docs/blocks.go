// Package docs reads the commands and the links of the project's Markdown files, which tests check.
package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is a fenced block of shell commands.
type Block struct {
	Line    int    // of the opening fence, from 1
	Section string // the heading above it
	Text    string
	NotRun  string // why no test runs it, "" if one does
	Stays   bool   // it runs until Ctrl-C
}

var (
	fence   = regexp.MustCompile("^ *(```+|~~~+) *([^ `]*)")
	heading = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	// A comment in the line before the fence, which is not rendered.
	notRun = regexp.MustCompile(`^ *<!-- not run: *(.*?) *-->$`)
	stays  = regexp.MustCompile(`^ *<!-- stays until Ctrl-C -->$`)
)

// Blocks returns the blocks marked `sh` in order. A mark without a reason is an error, and so is a
// mark without a block.
func Blocks(markdown string) ([]Block, error) {
	var found []Block
	var open *Block
	var closing, mark, section string
	for i, line := range strings.Split(markdown, "\n") {
		if closing != "" {
			if strings.TrimSpace(line) == closing {
				if open != nil {
					found = append(found, *open)
				}
				closing, open = "", nil
			} else if open != nil {
				open.Text += line + "\n"
			}
			continue
		}
		opening := fence.FindStringSubmatch(line)
		if mark != "" && (opening == nil || opening[2] != "sh") {
			return nil, fmt.Errorf("line %d: %s is not followed by a block of sh", i, mark)
		}
		switch {
		case opening != nil:
			closing = opening[1]
			if opening[2] != "sh" {
				continue
			}
			open = &Block{Line: i + 1, Section: section}
			if err := open.marked(mark); err != nil {
				return nil, fmt.Errorf("line %d: %w", i, err)
			}
			mark = ""
		case heading.MatchString(line):
			section = heading.FindStringSubmatch(line)[1]
		case notRun.MatchString(line) || stays.MatchString(line):
			mark = line
		}
	}
	if closing != "" {
		return nil, fmt.Errorf("unterminated block: %s", closing)
	}
	return found, nil
}

// shortest is the minimum length of a reason: "slow" is too short.
const shortest = 15

func (b *Block) marked(mark string) error {
	if mark == "" {
		return nil
	}
	if stays.MatchString(mark) {
		b.Stays = true
		return nil
	}
	b.NotRun = notRun.FindStringSubmatch(mark)[1]
	if len(b.NotRun) < shortest {
		return fmt.Errorf("%s gives no reason", mark)
	}
	return nil
}
