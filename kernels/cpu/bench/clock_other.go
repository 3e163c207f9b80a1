//go:build !linux

package main

import "time"

func processor() time.Duration { return wall() }
