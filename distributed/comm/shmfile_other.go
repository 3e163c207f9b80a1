//go:build !linux

package comm

import "errors"

type shmFile struct {
	path  string
	nonce uint64
	mem   []byte
}

var errNoShm = errors.New("shared memory between processes is not implemented on this system; ranks use TCP")

func createShm(string, int) (*shmFile, error)       { return nil, errNoShm }
func openShm(string, uint64, int) (*shmFile, error) { return nil, errNoShm }
func (*shmFile) unlink()                            {}
func (*shmFile) unmap()                             {}
func mountNamespace() string                        { return "" }
func bootID() string                                { return "" }
