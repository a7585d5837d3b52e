package hora

import (
	_ "embed"
	"strings"
)

//go:embed VERSION
var version string

// Version returns this program's, as in "0.1.0".
func Version() string { return strings.TrimSpace(version) }
