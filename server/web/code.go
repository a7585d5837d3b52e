package web

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// Code is what went along with a job.
type Code struct {
	Files []CodeFile
	More  int      // files beyond those
	Diff  []string // what the folder had beyond its commit, line by line
	Cut   int      // lines of it beyond those
	Hash  string   // of all of it
}

// Total is how many files there are.
func (c *Code) Total() int { return len(c.Files) + c.More }

// CodeFile is a file of that folder.
type CodeFile struct {
	Path string
	Size int64
	Hash string
	Link string // where it points to, where it is a link
}

// file shows one file of the folder that went along.
func (p *pages) file(w http.ResponseWriter, r *http.Request) error {
	id, err := number64(r)
	if err != nil {
		return err
	}
	if r.PathValue("path") == "" {
		http.Redirect(w, r, fmt.Sprintf("/jobs/%d", id), http.StatusSeeOther) // which lists the files
		return nil
	}
	v := struct {
		ID   int64
		File CodeFile
		Text string
		Cut  bool // there is more than is shown
		Raw  bool // it is no text
	}{ID: id}
	var content []byte
	if v.File, content, v.Cut, err = p.CodeFile(r.Context(), id, r.PathValue("path")); err != nil {
		return err
	}
	if v.Cut {
		for i := 0; i < utf8.UTFMax && !utf8.Valid(content); i++ {
			content = content[:len(content)-1] // the cut may be within a letter
		}
	}
	if v.Raw = !utf8.Valid(content) || strings.ContainsRune(string(content), 0); !v.Raw {
		v.Text = string(content)
	}
	return p.show(w, r, v.File.Path, "code.html", v)
}

// changed is how a line of a diff is shown.
func changed(line string) string {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "@@"),
		strings.HasPrefix(line, "diff "):
		return "head"
	case strings.HasPrefix(line, "+"):
		return "add"
	case strings.HasPrefix(line, "-"):
		return "del"
	}
	return ""
}
