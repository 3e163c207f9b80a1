package build

import (
	"io/fs"

	distributed "github.com/gtc-compiler/gtc/distributed"
	kernels "github.com/gtc-compiler/gtc/kernels"
	run "github.com/gtc-compiler/gtc/runtime"
)

// Version is gtc's version, written into manifests and checked by nothing else.
const Version = "0.1.0"

// carried is the source of the packages that rank programs import, by the folder that it lies in: compiling works offline and
// outside any checkout.
var carried = map[string]fs.FS{"distributed": distributed.Files, "kernels": kernels.Files, "runtime": run.Files}
