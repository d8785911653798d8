package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// browser is a headless Chromium, driven over a pipe by the DevTools protocol.
type browser struct {
	in      io.Writer
	out     *bufio.Reader
	session string
	lastID  int
}

// openBrowser starts the browser that scripts/test.sh has installed, with a page that runs no
// JavaScript of its own. languages are its Accept-Language.
func openBrowser(t *testing.T, languages string) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Fatal("there is no Chromium: run the tests through ./scripts/test.sh, which installs it")
	}
	readIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, writeOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir())
	command.ExtraFiles = []*os.File{readIn, writeOut} // it reads from 3 and writes to 4
	command.WaitDelay = 5 * time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = readIn.Close(), writeOut.Close()
	b := &browser{in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		b.session = ""
		_ = b.send("Browser.close", nil)
		_ = command.Wait()
		_, _ = in.Close(), out.Close()
	})
	target := b.call(t, "Target.createTarget", map[string]any{"url": "about:blank"})["targetId"]
	b.session, _ = b.call(t, "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true})["sessionId"].(string)
	b.call(t, "Page.enable", nil)
	b.call(t, "Network.enable", nil)
	b.call(t, "Network.setExtraHTTPHeaders", map[string]any{"headers": map[string]any{"Accept-Language": languages}})
	b.call(t, "Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
	return b
}

type devToolsMessage struct {
	ID     int            `json:"id,omitempty"`
	Method string         `json:"method,omitempty"`
	Params map[string]any `json:"params,omitempty"`
	Result map[string]any `json:"result,omitempty"`
	Error  map[string]any `json:"error,omitempty"`

	Session string `json:"sessionId,omitempty"`
}

func (b *browser) send(method string, params map[string]any) error {
	b.lastID++
	text, err := json.Marshal(devToolsMessage{ID: b.lastID, Method: method, Params: params, Session: b.session})
	if err != nil {
		return err
	}
	_, err = b.in.Write(append(text, 0))
	return err
}

func (b *browser) read(t *testing.T) (m devToolsMessage) {
	t.Helper()
	text, err := b.out.ReadBytes(0)
	if err != nil {
		t.Fatal("the browser has exited: ", err)
	}
	if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// call is one command and its result.
func (b *browser) call(t *testing.T, method string, params map[string]any) map[string]any {
	t.Helper()
	if err := b.send(method, params); err != nil {
		t.Fatal(err)
	}
	for {
		if m := b.read(t); m.ID == b.lastID {
			if m.Error != nil {
				t.Fatalf("%s: %v", method, m.Error)
			}
			return m.Result
		}
	}
}

// loaded waits for the end of a page's loading.
func (b *browser) loaded(t *testing.T) {
	t.Helper()
	for b.read(t).Method != "Page.loadEventFired" {
	}
}

func (b *browser) open(t *testing.T, address string) {
	t.Helper()
	if err := b.send("Page.navigate", map[string]any{"url": address}); err != nil {
		t.Fatal(err)
	}
	b.loaded(t)
}

// eval is the value of an expression, which the page itself could not run.
func (b *browser) eval(t *testing.T, expression string) any {
	t.Helper()
	result, _ := b.call(t, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true})["result"].(map[string]any)
	return result["value"]
}

// click presses the mouse in the middle of the page's button, and waits for the next page.
func (b *browser) click(t *testing.T) {
	t.Helper()
	at := map[string]any{"button": "left", "clickCount": 1}
	for name, edges := range map[string]string{"x": "left+r.right", "y": "top+r.bottom"} {
		at[name] = b.eval(t, "(r=>(r."+edges+")/2)(document.querySelector('button').getBoundingClientRect())")
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		at["type"] = kind
		if err := b.send("Input.dispatchMouseEvent", at); err != nil {
			t.Fatal(err)
		}
	}
	b.loaded(t)
}
