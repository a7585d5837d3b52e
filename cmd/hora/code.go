package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/server/client"
	"hora/server/snapshot"
)

// mostCode bounds the list of a folder's files that is read into memory.
const mostCode = 64 << 20

func (p *program) codeCommand() *cobra.Command {
	to, file, diff, changes := "", "", false, false
	c := p.onJob("code ID", "list, or fetch, the folder that went along with a job",
		func(ctx context.Context, s *client.Client, id int64, _ []string) error {
			if n := count(to != "", file != "", diff, changes); n > 1 {
				return usageError{errors.New("hora code takes one of --to, --file, --diff and --changes")}
			}
			j, m, err := snapshotOf(ctx, s, id)
			switch {
			case err != nil:
				return err
			case to != "":
				return p.codeTo(ctx, s, m, to)
			case file != "":
				return p.codeFile(ctx, s, id, m, file)
			case diff:
				return p.codeDiff(id, m)
			case changes:
				return p.codeChanges(ctx, s, j)
			}
			return p.codeList(j, m)
		})
	f := c.Flags()
	f.StringVar(&to, "to", "", "make the folder again as this `folder`, which is new or empty")
	f.StringVar(&file, "file", "", "write this `file` of it to the output")
	f.BoolVar(&diff, "diff", false, "list what differs in the current folder")
	f.BoolVar(&changes, "changes", false, "write what of it was not committed, as git diff has it")
	return c
}

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

// snapshotOf fetches the list of the files that went along with a job.
func snapshotOf(ctx context.Context, s *client.Client, id int64) (client.Job, *snapshot.Manifest, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return j, nil, err
	}
	if j.Document.Code == "" {
		return j, nil, fmt.Errorf("no folder went along with job %d: it was submitted with --no-code, or by a program that sends none", id)
	}
	in, err := s.Get(ctx, j.Document.Code)
	if err != nil {
		return j, nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, mostCode))
	if err != nil {
		return j, nil, fmt.Errorf("fetch the list of job %d's files: %w", id, err)
	}
	m, err := snapshot.Decode(b)
	return j, m, err
}

func (p *program) codeList(j client.Job, m *snapshot.Manifest) error {
	from := j.Document.Source
	if folder := from["folder"]; folder != "" {
		line := event.Visible(folder)
		if commit := from["commit"]; commit != "" {
			line += ", commit " + event.Visible(commit)
			if changed := from["changed"]; changed == "yes" {
				line += ", with changes"
			} else if changed != "" {
				line += ", with changes in " + event.Visible(changed)
			}
		}
		fmt.Fprintf(p.out, "from %s\n", line)
	}
	if from["diff"] != "" {
		fmt.Fprintf(p.out, "hora code %d --changes writes them\n", j.ID)
	}
	w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', tabwriter.AlignRight)
	for _, f := range m.Files {
		name := event.Visible(f.Path)
		if f.Link != "" {
			name += " -> " + event.Visible(f.Link)
		}
		fmt.Fprintf(w, "%d\t  %s\n", f.Size, name)
	}
	return w.Flush()
}

// codeChanges writes the diff that went along.
func (p *program) codeChanges(ctx context.Context, s *client.Client, j client.Job) error {
	from := j.Document.Source
	switch {
	case from["commit"] == "":
		return fmt.Errorf("no commit was noted with job %d: git knew nothing of its folder", j.ID)
	case from["changed"] == "":
		fmt.Fprintf(p.err, "hora: job %d ran commit %s as it is\n", j.ID, event.Visible(from["commit"]))
		return nil
	case from["diff"] == "":
		return fmt.Errorf("what was changed did not go along with job %d as a diff: it was more than 1 MiB, or of files that git does not follow; hora code %d --to FOLDER has the files", j.ID, j.ID)
	}
	in, err := s.Get(ctx, from["diff"])
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(p.out, in)
	return err
}

// codeTo makes the folder again. What is in the way there is not overwritten.
func (p *program) codeTo(ctx context.Context, s *client.Client, m *snapshot.Manifest, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if there, err := os.ReadDir(to); err != nil {
		return err
	} else if len(there) > 0 {
		return fmt.Errorf("the folder %s is not empty: name a new one", to)
	}
	if err := m.Restore(to, func(hash string) (io.ReadCloser, error) { return s.Get(ctx, hash) }); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "%s in %s\n", event.Counted(len(m.Files), "file"), to)
	return nil
}

func (p *program) codeFile(ctx context.Context, s *client.Client, id int64, m *snapshot.Manifest, name string) error {
	i := slices.IndexFunc(m.Files, func(f snapshot.File) bool { return f.Path == name })
	if i < 0 {
		return fmt.Errorf("no file %s went along with job %d: hora code %d lists those that did", name, id, id)
	}
	f := m.Files[i]
	if f.Link != "" {
		return fmt.Errorf("%s is a link to %s", name, event.Visible(f.Link))
	}
	in, err := s.Get(ctx, f.Hash)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(p.out, in)
	return err
}

// codeDiff compares what went along with the current folder, by content: A for a file that the folder alone has, D for
// one that the job alone has, M for one whose content, mode or target differs.
func (p *program) codeDiff(id int64, m *snapshot.Manifest) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	now, err := snapshot.Take(dir, snapshot.Limit)
	if err != nil {
		return err
	}
	lines := differences(m, now)
	if len(lines) == 0 {
		fmt.Fprintf(p.out, "%s is what went along with job %d\n", dir, id)
		return nil
	}
	_, err = fmt.Fprintln(p.out, strings.Join(lines, "\n"))
	return err
}

func differences(then, now *snapshot.Manifest) []string {
	was := map[string]snapshot.File{}
	for _, f := range then.Files {
		was[f.Path] = f
	}
	var lines []string
	for _, f := range now.Files {
		old, ok := was[f.Path]
		delete(was, f.Path)
		switch {
		case !ok:
			lines = append(lines, "A "+event.Visible(f.Path))
		case old.Hash != f.Hash || old.Link != f.Link || fs.FileMode(old.Mode) != fs.FileMode(f.Mode):
			lines = append(lines, "M "+event.Visible(f.Path))
		}
	}
	for name := range was {
		lines = append(lines, "D "+event.Visible(name))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return lines
}
