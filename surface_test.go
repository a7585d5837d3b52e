package hora_test

import (
	"reflect"
	"strings"
	"testing"

	"hora"
)

// TestWhatAGroupsPageShows: methods that a training has use for. What only a framework's bridge needs goes to
// internal/bridge.
func TestWhatAGroupsPageShows(t *testing.T) {
	const want = "Buffer ByName Cancel Close Counters Err Free InOrder Join Name Named Poll Rank Ranks Release Run Size Submit Wait"
	var got []string
	page := reflect.TypeFor[*hora.Group]()
	for i := range page.NumMethod() {
		m := page.Method(i)
		got = append(got, m.Name)
		for p := range m.Type.NumIn() {
			if m.Type.In(p).Kind() == reflect.UnsafePointer {
				t.Errorf("Group.%s takes an unsafe.Pointer", m.Name)
			}
		}
	}
	if got := strings.Join(got, " "); got != want {
		t.Errorf("Group has the methods\n%s\nand is to have\n%s", got, want)
	}
}
