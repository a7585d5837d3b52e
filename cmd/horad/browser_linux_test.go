package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"hora/job"
)

// browser is a Chromium that looks at a server's pages as its user does, and what it complained of.
type browser struct {
	*site
	ctx        context.Context
	mu         sync.Mutex // guards complaints
	complaints []string
}

func newBrowser(s *site) *browser {
	t := s.t
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: make deps installs it", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	options := append(
		chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1200, 900),
	)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	b := &browser{site: s, ctx: ctx}
	chromedp.ListenTarget(ctx, func(e any) {
		text := ""
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			text = e.ExceptionDetails.Error()
		case *log.EventEntryAdded: // what a policy forbids comes here too
			if e.Entry.Level == log.LevelError {
				text = e.Entry.Text + " " + e.Entry.URL
			}
		}
		if text != "" {
			b.mu.Lock()
			b.complaints = append(b.complaints, text)
			b.mu.Unlock()
		}
	})
	return b
}

// does some things, in order.
func (b *browser) does(what string, actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		page := ""
		_ = chromedp.Run(b.ctx, chromedp.Text("body", &page))
		b.t.Fatalf("%s: %v; the page says %q", what, err, page)
	}
}

// reads waits until a page has a text, also where another page is just being loaded.
func reads(text string) chromedp.Action {
	ask := fmt.Sprintf("document.body !== null && document.body.innerText.includes(%q)", text)
	return becomes(ask, fmt.Sprintf("there was no %q", text))
}

// becomes waits until the page answers true.
func becomes(ask, otherwise string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for found := false; ; {
			if err := chromedp.Evaluate(ask, &found).Do(ctx); err == nil && found {
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("%w: %s", ctx.Err(), otherwise)
			}
		}
	})
}

// click clicks where something is once the page is all there: until then its styles may come, and move it away.
func click(selector string) chromedp.Action {
	there := becomes(`document.readyState === "complete"`, "the page was never all there")
	return chromedp.Tasks{there, chromedp.Click(selector, chromedp.ByQuery)}
}

// brightness is how light a colour is, from 0 to 255, and legible names each text of a page that does not stand out
// from what is behind it.
const (
	brightness = `const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(Number); return 0.3*r + 0.59*g + 0.11*b };`
	legible    = `(() => { ` + brightness + `
		const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
			if (!/, 0\)$/.test(c) && c !== "transparent") return c } return "rgb(255,255,255)" };
		const faint = [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() &&
			[...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) &&
			Math.abs(light(getComputedStyle(e).color) - light(behind(e))) < 60);
		return faint.map(e => e.tagName + " " + e.textContent.trim().slice(0, 40)).join("; ") })()`
)

// narrowAndDark looks at pages in a window of 360, and with colours for the dark: the page is dark there, which it is
// not else, and its text is light.
func (b *browser) narrowAndDark(pages ...string) {
	t := b.t
	t.Helper()
	scheme := func(is string) chromedp.Action {
		return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: is}})
	}
	background := `(() => { ` + brightness + ` return light(getComputedStyle(document.body).backgroundColor) })()`
	for _, page := range pages {
		var wide bool
		var light, dark float64
		var faint, faintInTheDark string
		b.does(
			"narrow and dark "+page, emulation.SetDeviceMetricsOverride(360, 640, 1, true), scheme("light"), chromedp.Navigate(b.url+page),
			chromedp.WaitVisible("h1", chromedp.ByQuery), chromedp.Evaluate("document.documentElement.scrollWidth > 360", &wide),
			chromedp.Evaluate(background, &light), chromedp.Evaluate(legible, &faint), scheme("dark"),
			chromedp.Evaluate(background, &dark), chromedp.Evaluate(legible, &faintInTheDark),
		)
		if wide {
			t.Errorf("%s is wider than a window of 360", page)
		}
		if light < 200 || dark > 60 {
			t.Errorf("%s has a background of brightness %v, and %v in the dark", page, light, dark)
		}
		if faint != "" || faintInTheDark != "" {
			t.Errorf("%s has text that is hard to read: %q, and in the dark %q", page, faint, faintInTheDark)
		}
	}
	b.does("wide again", emulation.ClearDeviceMetricsOverride())
}

// TestPagesInABrowser clicks through every page in Chromium: links, buttons, ticks, lines that come while one looks on,
// a narrow window and a dark one; and the browser has nothing to complain of.
func TestPagesInABrowser(t *testing.T) {
	s := newSite(t, 1)
	report := `python3 -c '
import json, os, socket
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["HORA_REPORT"])
for step in range(50):
    s.sendall(json.dumps({"rank": 0, "step": step, "metrics": {"loss": %s / (step + 1)}}).encode() + b"\n")
'; echo result > outputs/result`
	for _, scale := range []string{"1", "2"} {
		s.until(s.submit(shell(1, fmt.Sprintf(report, scale))).ID, in(job.Finished))
	}
	gate := t.TempDir() + "/gate"
	live := s.submit(shell(1, "echo first line; until [ -e "+gate+" ]; do sleep 0.05; done; echo a line that comes later; sleep 60"))
	s.until(live.ID, in(job.Running))
	waits := s.submit(shell(1, "true"))
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	b := newBrowser(s)
	b.does("log in", log.Enable(), runtime.Enable(), chromedp.Navigate(s.url+"/?token="+s.client.Token), reads("Waiting"), reads("needs 1 slot, none is free"))
	s.change("UPDATE jobs SET state = 'failed', text = 'it cannot read /" + strings.Repeat("data", 40) + "' WHERE id = 2")
	b.narrowAndDark("/", fmt.Sprintf("/jobs/%d", live.ID), "/jobs/1", "/jobs/2", "/nodes", "/pools", "/projects", "/audit", "/compare?job=1&job=2")
	b.does("the queue", chromedp.Navigate(s.url+"/"))
	b.does("compare", click(`input[name=job][value="1"]`), click(`input[name=job][value="2"]`), click(`form[action="/compare"] button`),
		reads("Jobs beside each other"), reads("job 1: 0.02"), reads("job 2: 0.04"), chromedp.WaitVisible("svg polyline", chromedp.ByQuery))
	b.does("machines, pools, projects", click(`a[href="/nodes"]`), reads("Machines"), click(`a[href="/pools#default"]`), reads("machines that come by themselves"),
		click(`a[href="/projects"]`), reads("Used counts slots"), click(`nav a[href="/"]`), reads("Running"))
	b.does("a job with its results", click(`a[href="/jobs/1"]`), reads("loss"), reads("result"), reads("it was submitted"), click(`nav a[href="/"]`), reads("Waiting"))
	b.does("a job that runs", click(fmt.Sprintf(`a[href="/jobs/%d"]`, live.ID)), reads("first line"), chromedp.Evaluate("window.same = true", nil))
	if err := exec.Command("touch", gate).Run(); err != nil {
		t.Fatal(err)
	}
	var same bool
	b.does("new lines", reads("a line that comes later"), chromedp.Evaluate("window.same === true", &same))
	if !same {
		t.Error("the page was loaded anew, and its line was to come by itself")
	}
	b.does("cancel", click(fmt.Sprintf(`form[action="/jobs/%d/cancel"] button`, live.ID)))
	s.until(live.ID, in(job.Cancelled))
	b.does("its end", reads("cancelled"), reads("exit code"))
	s.until(waits.ID, in(job.Finished))
	b.does("who did what", click(`a[href="/audit"]`), reads("Who did what"), reads(fmt.Sprintf("/jobs/%d/cancel", live.ID)))
	b.does("sign out", click(`form[action="/sign-out"] button`), reads("Signed out"))
	b.mu.Lock()
	complaints := len(b.complaints) // what follows is one for a browser: it is refused
	b.mu.Unlock()
	b.does("signed out", chromedp.Navigate(s.url+"/"), reads("a token lets you in"))
	b.signsIn(live.ID)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = b.complaints[:complaints]
	if len(b.complaints) > 0 {
		t.Errorf("the browser complains: %s", strings.Join(b.complaints, "; "))
	}
}

// signsIn signs in where a job's page was asked for, with a wrong token first, and is there then.
func (b *browser) signsIn(id int64) {
	b.t.Helper()
	page := fmt.Sprintf("/jobs/%d", id)
	b.narrowAndDark(page)
	token := func(text string) chromedp.Action {
		return chromedp.SendKeys(`input[name="token"]`, text+"\r", chromedp.ByQuery)
	}
	b.does("a wrong token", chromedp.Navigate(b.url+page), reads("a token lets you in"), token("wrong"), reads("That is no token"))
	b.does("a right one", token(b.client.Token), reads(fmt.Sprintf("Job %d", id)), reads("it was submitted"))
}

// TestCodeInABrowser: a job's page has the files that went along with it, each to be read, and what was not committed.
func TestCodeInABrowser(t *testing.T) {
	s := newSite(t, 1)
	dir, write, commit := committed(t)
	write("train.sh", "echo second\n", 0o755)
	if r := s.horaIn(dir, "submit", "--held", "sh", "train.sh"); r.code != 0 || r.out != "1\n" {
		t.Fatalf("%+v", r)
	}
	b := newBrowser(s)
	b.does("log in", log.Enable(), runtime.Enable(), chromedp.Navigate(s.url+"/?token="+s.client.Token), reads("Waiting"))
	b.does("a job's code", click(`a[href="/jobs/1"]`), reads(commit), reads("lib/model.txt"), click("details:not([open]) summary"), reads("-echo first"))
	b.does("a file", click(`a[href="/jobs/1/code/train.sh"]`), reads("echo second"), click(`a[href="/jobs/1"]`), reads("what was not committed"))
	b.narrowAndDark("/jobs/1", "/jobs/1/code/train.sh")
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.complaints) > 0 {
		t.Errorf("the browser complains: %s", strings.Join(b.complaints, "; "))
	}
}
