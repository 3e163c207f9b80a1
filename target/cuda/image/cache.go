package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// one compiles a kernel for arch, or takes it from the cache. The cache is a folder of files that are written whole; what
// cannot be written or read there is compiled.
func (b *Builder) one(ctx context.Context, u unit, arch string) (image []byte, log string, cached bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", false, err
	}
	path := ""
	if b.o.Cache != "" {
		path = filepath.Join(b.o.Cache, b.key(u, arch))
		image, err := os.ReadFile(path)
		text, err2 := os.ReadFile(path + ".log")
		if err == nil && err2 == nil && len(image) > 0 {
			return image, string(text), true, nil
		}
	}
	image, log, err = b.compiler.compile(ctx, u, arch)
	if err == nil && path != "" && os.MkdirAll(b.o.Cache, 0o777) == nil {
		keep(path+".log", []byte(log))
		keep(path, image)
	}
	return image, log, false, err
}

// key is a hash of what the image depends on.
func (b *Builder) key(u unit, arch string) string {
	h := sha256.New()
	fmt.Fprintf(h, "1\n%s\n%s\n%q\n%d\n%s\n", b.compiler.name(), arch, u.options, len(u.text), u.text)
	for _, x := range u.headers {
		fmt.Fprintf(h, "%s %d\n%s\n", x.Name, len(x.Text), x.Text)
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
}

// keep writes a file that others see whole or not at all.
func keep(path string, data []byte) {
	f, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if err2 := f.Close(); err != nil || err2 != nil || os.Rename(f.Name(), path) != nil {
		os.Remove(f.Name())
	}
}
