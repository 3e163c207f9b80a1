// The host's side of gtc.cuh.
#pragma once
